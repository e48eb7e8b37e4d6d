"""Operators of requests that mean "unknown"; the actual operator is identified from the upload."""

import sys

from aps_core.registry import discover

discover(sys.modules[__name__])
