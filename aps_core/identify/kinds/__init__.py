"""Operators of requests that mean "unknown": what they stand for is identified from the upload."""

import sys

from aps_core.registry import discover

discover(sys.modules[__name__])
