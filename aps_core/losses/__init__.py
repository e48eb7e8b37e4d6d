"""Losses of the inner optimisation, one file each, found by :func:`aps_core.registry.discover`."""

import sys

from aps_core.losses.base import LossSpec
from aps_core.registry import discover

discover(sys.modules[__name__], "aps.losses")

__all__ = ["LossSpec"]
