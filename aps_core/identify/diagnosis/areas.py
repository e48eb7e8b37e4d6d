"""Pixels that carry no information: clipped, missing, or repeated by enlarging."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aps_core.identify.diagnosis.thresholds import MISSING, NOISE

Pixels = NDArray[np.uint8]
"""(H, W, 3)."""

FACTORS = range(2, 9)
"""Factors of enlargement that are recognised."""


class Missing(NamedTuple):
    """Pixels of one colour that seem to be missing."""

    share: float
    shape: Literal["box", "scattered"]
    colour: tuple[int, int, int]


def clipped(rgb: Pixels) -> tuple[float, float]:
    """Share of pixels with a channel at white, and share that are black."""
    return float((rgb >= 254).any(2).mean()), float((rgb <= 1).all(2).mean())


def missing(rgb: Pixels) -> Missing | None:
    """Missing pixels of a photograph: a box, or scattered pixels, of exactly one colour; None if
    there are none.

    Natural areas of one colour are neither rectangular nor made of isolated pixels.
    """
    packed = rgb.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)
    values, counts = np.unique(packed, return_counts=True)
    most = int(values[counts.argmax()])
    same = packed == most
    share = float(same.mean())
    if share < MISSING.least or share > MISSING.most:
        return None
    colour = (most >> 16, most >> 8 & 255, most & 255)
    rows, columns = np.flatnonzero(same.any(1)), np.flatnonzero(same.any(0))
    if (shape := _box(same, share)) is not None:
        return Missing(shape, "box", colour)
    inside = same[1:-1, 1:-1]
    # if pixels are missing independently, neighbours of missing and of known pixels are missing at
    # the same rate
    beside = _neighbours(same).mean(0)
    alike = float(beside[inside].mean()) if inside.any() else 1.0
    other = float(beside[~inside].mean()) if not inside.all() else 0.0
    as_often = max(abs(alike - share), abs(other - share)) < (
        MISSING.independence * max(share, MISSING.independence_floor)
    )
    if as_often and min(len(rows), len(columns)) > MISSING.lines:
        return Missing(share, "scattered", colour)
    return None


def _box(same: NDArray[np.bool_], share: float) -> float | None:
    """Share of the picture in a filled rectangle that holds nearly all pixels of one colour; None
    if there is none.
    """
    rows = np.flatnonzero(same.mean(1) > MISSING.line)
    columns = np.flatnonzero(same.mean(0) > MISSING.line)
    if not (len(rows) and len(columns)):
        return None
    box = same[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    filled = box.mean() > MISSING.filled and box.sum() > MISSING.inside * same.sum()
    return share if filled and min(box.shape) >= MISSING.box_side else None


def repeated(rgb: Pixels) -> int | None:
    """Factor of an enlargement by repeated pixels; None without one."""
    found = [_repeated_along(side) for side in _both(rgb)]
    return found[0] if found[0] == found[1] else None


def _both(rgb: Pixels) -> tuple[Pixels, Pixels]:
    return rgb, rgb.swapaxes(0, 1)


def _repeated_along(rgb: Pixels) -> int | None:
    """Largest factor such that rows change only at its multiples; None if there is none."""
    changes = np.flatnonzero((rgb[1:] != rgb[:-1]).any((1, 2)))
    if len(changes) < 8:
        return None
    factors = [f for f in FACTORS if ((changes + 1) % f == 0).all()]
    return max(factors, default=None)


def impulses(rgb: Pixels) -> float:
    """Share of isolated black or white pixels (salt-and-pepper noise); 0 for black-and-white
    pictures, and if such pixels tend to be adjacent, as in thin strokes.
    """
    grey = rgb.astype(np.int16).mean(2)
    if min(grey.shape) < 3 or bool(((grey <= 2) | (grey >= 253)).all()):
        return 0.0
    inner, middle = grey[1:-1, 1:-1], np.median(_neighbours(grey), axis=0)
    beside = expected = 0.0
    extreme = np.zeros_like(inner, dtype=bool)
    for colour, contrast in ((inner >= 253, middle < 180), (inner <= 2, middle > 75)):
        found = colour & contrast
        if found.any():
            beside += float(_neighbours(np.pad(found, 1)).mean(0)[found].sum())
            # noise is independent, so its pixels are as frequent beside one another as elsewhere
            expected += float(found.sum()) ** 2 / float(contrast.sum())
            extreme |= found
    return float(extreme.mean()) if beside < NOISE.side_by_side * expected else 0.0


def _neighbours(values: NDArray[Any]) -> NDArray[Any]:
    """The four neighbours (4, H - 2, W - 2) of inner pixels."""
    return np.stack([values[:-2, 1:-1], values[2:, 1:-1], values[1:-1, :-2], values[1:-1, 2:]])
