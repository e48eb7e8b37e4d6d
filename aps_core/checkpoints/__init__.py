"""Checkpoint files: what exists, where it is stored, how it is read and verified."""
