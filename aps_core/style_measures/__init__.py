"""Style measures, one file each, found by :func:`aps_core.registry.discover`."""

import sys

from aps_core.registry import discover
from aps_core.style_measures.base import StyleMeasureSpec

discover(sys.modules[__name__], "aps.style_measures")

__all__ = ["StyleMeasureSpec"]
