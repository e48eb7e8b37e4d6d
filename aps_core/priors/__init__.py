"""Priors, one folder each, found by :func:`aps_core.registry.discover`."""

import sys

from aps_core.priors.base import ImagePriorSpec, PriorSpec, TextModels, TextPriorSpec
from aps_core.registry import discover

discover(sys.modules[__name__], "aps.priors")

__all__ = ["ImagePriorSpec", "PriorSpec", "TextModels", "TextPriorSpec"]
