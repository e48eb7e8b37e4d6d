"""Quality of an earlier JPEG compression, estimated from traces in the pixels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aps_core.identify.diagnosis.thresholds import COMPRESSION
from aps_core.imaging.jpeg_tables import table

Array = NDArray[np.float64]

QUALITIES = range(10, 93)
"""Qualities that can be detected; higher ones leave no trace beyond rounding."""
COEFFICIENTS = [(0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1), (2, 2), (0, 3), (3, 0)]
"""Rows and columns of the DCT coefficients that are compared."""
UNCLIPPED = 1 - 0.5 / 127.5
"""Absolute value below which all pixels of a block must lie: others may be clipped."""
SAMPLE = 160
"""Side in pixels of the part in which the grid of blocks is searched."""


class Traces(NamedTuple):
    """Quality that explains the pixels best."""

    quality: int
    clearness: float
    """Mean cosine of the coefficients' phases in units of this quality's steps; at most 1."""


def traces(luminance: Array) -> Traces | None:
    """Traces of a JPEG compression before the picture was saved as this file.

    Up to rounding, DCT coefficients of compressed blocks are multiples of the quality's steps. None
    without clear traces: the picture was never compressed, has high quality or was changed since.

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
    """Row and column of the first block in a cropped picture: those of the clearest of all 64
    grids, judged by a sample of blocks and qualities.
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
    # higher qualities fit as well if their steps divide those of the true one: take the lowest
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
    # identical blocks, frequent on screens, are counted once
    return np.unique(chosen.round(2), axis=1)


def _clearness(coefficients: Array, quality: int) -> float:
    steps = np.array([table(quality)[at] for at in COEFFICIENTS])[:, None]
    counted = (np.abs(coefficients) > 0.6 * steps) & (steps > 1)
    if counted.sum() < COMPRESSION.coefficients:
        return 0.0
    return float(np.cos(2 * np.pi * coefficients / steps)[counted].mean())
