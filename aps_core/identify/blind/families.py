"""Parametric families of blurs, and the candidates that a maximisation step compares."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from aps_core.operators.base import OperatorSpec

Name = Literal["gaussian", "defocus", "motion"]
Parameters = tuple[float, ...]
"""Size in pixels; for a motion also its direction in degrees."""

SIZES, DIRECTIONS = 9, 7
"""Numbers of candidates of each parameter; odd, so that the centre is one of them."""
DEGREES = 60.0
"""Reach of the directions, in degrees, for a reach of 1 (a factor of e in size)."""


@dataclass(frozen=True)
class Family:
    """Blurs that differ in their size, and for a motion in their direction."""

    operator: str
    """Type of the operator."""
    size: str
    """Name of the field with the size in pixels."""
    least: float
    """Smallest size in pixels; smaller blurs hardly differ from none."""
    deviation: float
    """Standard deviation in pixels for a size of 1; along the direction if there is one."""
    angle: str | None = None
    """Name of the field with the direction in degrees."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return (self.size,) if self.angle is None else (self.size, self.angle)

    def blur(self, parameters: Parameters) -> OperatorSpec:
        """The blur with these parameters."""
        return OperatorSpec.named(self.operator).model_validate(self.named(parameters))

    def named(self, parameters: Parameters) -> dict[str, float]:
        """Parameters by name, rounded to a hundredth; a direction is below 180 degrees."""
        size, *angle = (round(value, 2) for value in parameters)
        values = max(0.01, size), *(each % 180 for each in angle)
        return dict(zip(self.names, values, strict=True))

    def scaled(self, parameters: Parameters, factor: float) -> Parameters:
        """Parameters with the size multiplied by ``factor``."""
        return (parameters[0] * factor, *parameters[1:])

    def around(self, centre: Parameters, reach: float, side: int) -> list[Parameters]:
        """Candidates around ``centre``, which is one of them.

        Args:
            centre: current parameters.
            reach: logarithm of the largest factor of the size; also scales :data:`DEGREES`.
            side: shorter side of the picture in pixels; larger blurs do not fit it.
        """
        factors = np.exp(np.linspace(-reach, reach, SIZES))
        most = side / (5 * self.deviation)
        sizes = sorted({min(most, max(self.least, float(centre[0] * f))) for f in factors})
        if self.angle is None:
            return [(size,) for size in sizes]
        turns = DEGREES * np.linspace(-reach, reach, DIRECTIONS)
        return list(product(sizes, [float((centre[1] + turn) % 180) for turn in turns]))

    def distance(self, one: Parameters, other: Parameters) -> float:
        """The larger of the log ratio of the sizes and the angle between the directions in units of
        :data:`DEGREES`.
        """
        size = abs(np.log(one[0] / other[0]))
        if self.angle is None:
            return float(size)
        turn = abs(one[1] - other[1]) % 180
        return float(max(size, min(turn, 180 - turn) / DEGREES))


FAMILIES: dict[Name, Family] = {
    "gaussian": Family("gaussian_blur", "sigma", 0.3, 1.0),
    "defocus": Family("defocus_blur", "radius", 0.6, 0.5),
    "motion": Family(
        operator="linear_motion_blur", size="length", least=1.5, deviation=12**-0.5, angle="angle"
    ),
}
