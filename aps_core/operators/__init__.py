"""Measurement operators, one file each, found by :func:`aps_core.registry.discover`."""

import sys
from typing import Annotated

from aps_core.operators.base import Bound, OperatorSpec, Shape, Support
from aps_core.registry import AnyOf, discover

discover(sys.modules[__name__], "aps.operators")

AnyOperator = Annotated[OperatorSpec, AnyOf(OperatorSpec)]
"""Field of any operator, told apart by ``type``."""

__all__ = ["AnyOperator", "Bound", "OperatorSpec", "Shape", "Support"]
