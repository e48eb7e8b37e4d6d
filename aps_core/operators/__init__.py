"""Measurement operators, one file each, found by :func:`aps_core.registry.discover`."""

import sys

from aps_core.operators.base import Bound, OperatorSpec, Shape, Support
from aps_core.registry import discover

discover(sys.modules[__name__], "aps.operators")

__all__ = ["Bound", "OperatorSpec", "Shape", "Support"]
