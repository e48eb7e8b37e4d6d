"""The Dream-7B prior. The spec needs no torch; the network does."""

from aps_core.priors.dream import spec

__all__ = ["spec"]
