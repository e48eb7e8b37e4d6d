"""The VQ-Diffusion prior. The spec needs no torch; the network does."""

from aps_core.priors.vq_diffusion import spec

__all__ = ["spec"]
