"""The LLaDA-8B prior. The spec needs no torch; the network does."""

from aps_core.priors.llada import spec

__all__ = ["spec"]
