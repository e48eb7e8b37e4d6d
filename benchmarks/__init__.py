"""Measurements of speed and memory; run as modules from the repository's root. See README.md."""
