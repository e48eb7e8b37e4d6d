"""Quantisation tables of JPEG files, by quality."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Table = tuple[tuple[int, ...], ...]

# JPEG standard, annex K; rows of the 8x8 block
LUMINANCE: Table = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE: Table = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *(((99,) * 8,) * 4),
)


@lru_cache(maxsize=200)
def table(quality: int, standard: Table = LUMINANCE) -> Array:
    """Quantisation steps (8, 8) in levels of 8 bits, at a quality of 1 to 100."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality  # as libjpeg rounds
    found: Array = np.clip(np.floor((np.array(standard) * percent + 50) / 100), 1, 255)
    return found


def quality_of(steps: Sequence[int]) -> int:
    """Quality whose luminance steps are closest to 64 given ones, in any order."""
    found = np.sort(np.array(steps, dtype=np.float64))
    distance = [np.abs(np.sort(table(q).ravel()) - found).sum() for q in range(1, 101)]
    return int(np.argmin(distance)) + 1
