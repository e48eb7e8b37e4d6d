"""Benchmarks of speed and memory, run as modules from the repository root; see README.md."""
