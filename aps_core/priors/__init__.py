"""Priors: one file each, found by :func:`aps_core.registry.discover`."""

import sys

from aps_core.priors.base import ImagePriorSpec, PriorSpec, TextModels, TextPriorSpec
from aps_core.registry import discover

NETWORKS = ("mmada", "vq_diffusion_net", "windows", "dream", "llada", "masked_lm")
"""The networks themselves: they need torch, which specs do not."""

discover(sys.modules[__name__], "aps.priors", skip=NETWORKS)

__all__ = ["ImagePriorSpec", "PriorSpec", "TextModels", "TextPriorSpec"]
