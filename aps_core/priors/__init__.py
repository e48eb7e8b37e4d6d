"""Priors: one file each, found by :func:`aps_core.registry.discover`."""

import sys

from aps_core.priors.base import ImagePriorSpec, PriorSpec, TextModels, TextPriorSpec
from aps_core.registry import discover

NETWORKS = ("mmada", "dream", "llada", "masked_lm", "vq_diffusion_net", "windows")
"""Modules that hold networks, not specs: they need torch."""

discover(sys.modules[__name__], "aps.priors", skip=NETWORKS)

__all__ = ["ImagePriorSpec", "PriorSpec", "TextModels", "TextPriorSpec"]
