"""Anchored posterior sampling (APS) with discrete diffusion priors: the library."""

__version__ = "0.1.0"
