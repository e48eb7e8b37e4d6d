"""JPEG quality from the traces that blocks left in the pixels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aps_core.identify.diagnosis.thresholds import COMPRESSION
from aps_core.imaging.jpeg_tables import table

Array = NDArray[np.float64]

QUALITIES = range(10, 93)
"""Qualities that pixels reveal; higher ones leave no trace beyond rounding."""
COEFFICIENTS = [(0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1), (2, 2), (0, 3), (3, 0)]
"""Rows and columns of the DCT coefficients that are compared."""
UNCLIPPED = 1 - 0.5 / 127.5
"""Largest absolute value of a block that was not clipped."""
SAMPLE = 160
"""Side in pixels of the part in which the grid of blocks is searched."""


class Traces(NamedTuple):
    """Traces of compression in the pixels."""

    quality: int
    clearness: float
    """Mean cosine of the phase of the coefficients within the steps of this quality."""


def traces(luminance: Array) -> Traces | None:
    """Quality of an earlier compression of a picture that was then saved as another file.

    Coefficients of compressed blocks are multiples of the quality's steps, up to rounding. None if
    there are no clear traces: never compressed, of high quality, or changed since.

    Args:
        luminance: (H, W) in [-1, 1].
    """
    if min(luminance.shape) < 32:
        return None
    found = _best(luminance)
    if found is None or found.clearness < COMPRESSION.clear:
        top, left = _offset(luminance)
        found = _best(luminance[top:, left:])
    return found if found is not None and found.clearness >= COMPRESSION.clear else None


def _offset(luminance: Array) -> tuple[int, int]:
    """Row and column of the first block of a cropped picture: the clearest of all 64 grids, by some
    of the blocks and qualities.
    """
    clearest, best = 0.0, (0, 0)
    for top, left in np.ndindex(8, 8):
        coefficients = _coefficients(luminance[top : top + SAMPLE, left : left + SAMPLE])
        clearness = max(_clearness(coefficients, quality) for quality in QUALITIES[::6])
        if clearness > clearest:
            clearest, best = clearness, (top, left)
    return best


def _best(luminance: Array) -> Traces | None:
    coefficients = _coefficients(luminance)
    clearness = np.array([_clearness(coefficients, quality) for quality in QUALITIES])
    if clearness.max() <= 0:
        return None
    # multiples of a step are also multiples of its divisors, which finer qualities have
    lowest = int(np.flatnonzero(clearness >= 0.9 * clearness.max())[0])
    near = slice(max(0, lowest - 2), lowest + 3)
    best = lowest if lowest < 2 else near.start + int(np.argmax(clearness[near]))
    return Traces(QUALITIES[best], float(clearness[best]))


def _coefficients(luminance: Array) -> Array:
    """The compared DCT coefficients (10, n) of all 8x8 blocks, in grey levels."""
    height, width = (side // 8 * 8 for side in luminance.shape)
    blocks = luminance[:height, :width].reshape(height // 8, 8, width // 8, 8).swapaxes(1, 2)
    n = np.arange(8)
    dct = np.cos((2 * n[None] + 1) * n[:, None] * np.pi / 16) / 2
    dct[0] /= np.sqrt(2)
    # clipping changes the coefficients of a block
    whole = np.abs(blocks).max((2, 3)) < UNCLIPPED
    spectrum = dct @ (127.5 * blocks[whole]) @ dct.T
    chosen = np.stack([spectrum[..., row, column].ravel() for row, column in COEFFICIENTS])
    # equal blocks, as on screens, are no further evidence
    return np.unique(chosen.round(2), axis=1)


def _clearness(coefficients: Array, quality: int) -> float:
    steps = np.array([table(quality)[at] for at in COEFFICIENTS])[:, None]
    counted = (np.abs(coefficients) > 0.6 * steps) & (steps > 1)
    if counted.sum() < COMPRESSION.coefficients:
        return 0.0
    return float(np.cos(2 * np.pi * coefficients / steps)[counted].mean())
