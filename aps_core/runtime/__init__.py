"""Priors loaded on a device: engine, time and memory estimates, out-of-memory fallbacks."""
