"""Length and direction of a straight movement from the edges of a page or screen."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from PIL import Image

from aps_core.identify.blind.families import FAMILIES, Parameters
from aps_core.identify.blind.kernel import centred, light_of
from aps_core.identify.blind.kernel_search import examined_grey
from aps_core.identify.blind.photograph import reduction
from aps_core.identify.blind.sparse_gradients import SparseGradients

SIDE = 96
"""Side of the examined part in pixels."""
LENGTHS, BEST = 9, 2
"""Number of lengths compared first, and of the best movements that are then refined."""
FINER = (0.09, 0.045, 0.0225)
"""Reaches of the refinements, as logarithms of the factor of the length."""
DEGREES = 60.0
"""Reach of the directions, in degrees, for a reach of 1."""
ROUNDS = 3
"""Number of E steps for every blur."""


def movement_of(
    image: Image.Image,
    near: list[Parameters],
    reach: float,
    *,
    sigma: float | None = None,
    rounding: float = 0.0,
) -> Parameters:
    """Movement with the most evidence, with the picture's gradients integrated out. Takes seconds.

    Args:
        image: RGB.
        near: guesses of length and direction, in pixels and degrees; the most reliable first.
        reach: logarithm of the largest factor between the first length and the result; if the best
            movement lies beyond, the first guess is returned.
        sigma: standard deviation of the noise on the [-1, 1] scale; None estimates it.
        rounding: standard deviation of an additional error, such as that of JPEG.
    """
    family = FAMILIES["motion"]
    zoom = reduction(image, near[0][0] * family.deviation)
    y_HW, noise = examined_grey(image, zoom, sigma, rounding, SIDE)
    picture = SparseGradients(y_HW, noise)
    longest = near[0][0] * math.exp(reach) / zoom
    side = 2 * math.ceil(longest / 2) + 3
    known: dict[Parameters, float] = {}

    def evidence(movement: Parameters) -> float:
        if movement not in known:
            blur = family.blur(family.scaled(movement, 1 / zoom))
            kernel_KK = centred(light_of(blur), side).to(y_HW)
            posterior = picture.posterior(kernel_KK, rounds=ROUNDS)
            known[movement] = picture.evidence(kernel_KK, posterior)
        return known[movement]

    def around(movement: Parameters, reach: float) -> list[Parameters]:
        factors = (math.exp(-reach), 1.0, math.exp(reach))
        turns = (-DEGREES * reach, 0.0, DEGREES * reach)
        return [
            (movement[0] * f, (movement[1] + turn) % 180) for f, turn in product(factors, turns)
        ]

    factors = np.exp(np.linspace(-reach, reach, LENGTHS))
    lengths = [max(family.least, float(near[0][0] * factor)) for factor in factors]
    starts = set(product(lengths, (direction for _, direction in near)))
    found = []
    for start in sorted(starts, key=evidence, reverse=True)[:BEST]:
        best: Parameters = start
        for finer in FINER:
            best = max(around(best, finer), key=evidence)
        found.append(best)
    best = max(found, key=evidence)
    return best if abs(math.log(best[0] / near[0][0])) <= reach else near[0]
