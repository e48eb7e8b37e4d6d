"""Crops that the diagnosis examines: the most detailed parts of a picture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from aps_core.imaging.images import LUMA

Array = NDArray[np.float64]

SIDE = 256
"""Longest side of a crop in pixels."""
COUNT = 6
"""Number of crops of a large picture."""
SMALLEST = 48
"""Shorter side in pixels below which a picture is too small for an estimate of blur."""


def detailed(image: Image.Image, count: int = COUNT) -> list[tuple[int, int, int, int]]:
    """Boxes (left, top, right, bottom) with the most detail, best first; one box for a small
    picture.

    Detail is measured on a reduced picture, which takes milliseconds for 12 megapixels.
    """
    columns, rows = (max(1, side // SIDE) for side in image.size)
    width, height = (min(SIDE, side) for side in image.size)
    if columns * rows == 1:
        left, top = (image.width - width) // 16 * 8, (image.height - height) // 16 * 8
        return [(left, top, left + width, top + height)]
    fine = np.asarray(image.convert("L").reduce(max(1, SIDE // 64)), dtype=np.float64)
    slopes = np.abs(np.diff(fine, axis=0))[:, :-1] + np.abs(np.diff(fine, axis=1))[:-1]
    boxes, scores = [], []
    for row in range(rows):
        for column in range(columns):
            # multiples of 8, so that the blocks of a JPEG stay whole
            left = column * (image.width - width) // max(1, columns - 1) // 8 * 8
            top = row * (image.height - height) // max(1, rows - 1) // 8 * 8
            zoom = fine.shape[1] / image.width
            cell = slopes[
                int(top * zoom) : int((top + height) * zoom),
                int(left * zoom) : int((left + width) * zoom),
            ]
            boxes.append((left, top, left + width, top + height))
            scores.append(np.sqrt((cell**2).mean()) if cell.size else 0.0)
    best = np.argsort(scores)[::-1][:count]
    return [boxes[i] for i in best]


def luminance(rgb: NDArray[np.uint8]) -> Array:
    """Luminance (H, W) in [-1, 1] of an 8-bit picture (H, W, 3)."""
    values: Array = rgb @ np.array(LUMA) / 127.5 - 1
    return values
