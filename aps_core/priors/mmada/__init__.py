"""The published image priors of MMaDA. The spec needs no torch; the network does."""

from aps_core.priors.mmada import spec

__all__ = ["spec"]
