"""Priors loaded on a device, and their fallbacks when memory runs out."""
