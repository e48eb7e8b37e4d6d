"""Strength and kind of a picture's noise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from aps_core.imaging.noise_level import (
    LOW_DECILE,
    clipped_noise,
    estimate_noise,
    noisy_tiles,
    smoothed_noise,
)

Array = NDArray[np.float64]
Pixels = NDArray[np.uint8]


def measured(parts: Sequence[Pixels], compressed: bool) -> tuple[float, float] | None:
    """Standard deviation of the noise on the [-1, 1] scale, and the share of its variance at white
    that grows with brightness; None if too little shows it.

    Where little is neither black nor white, the noise that clipping has left is measured; not if
    JPEG has compressed the picture, which leaves ripples around letters.

    Args:
        parts: crops (H, W, 3) of the picture.
        compressed: whether there are traces of JPEG.
    """
    values = [np.moveaxis(part, 2, 0) / 127.5 - 1 for part in parts]
    tiles = [tile for y_CHW in values for tile in noisy_tiles(y_CHW)]
    if len(tiles) >= 4:
        deviations, means = np.array(tiles).T
        sigma = float(np.quantile(deviations, 0.1)) / LOW_DECILE
        smoothed = [smoothed_noise(y_CHW, sigma) for y_CHW in values]
        if all(smoothed):
            return min(each for each in smoothed if each), 0.0
        return sigma, _photon_share(deviations, means)
    shown = [] if compressed else [y for y in values if clipped_noise(y) is not None]
    return (min(map(estimate_noise, shown)), 0.0) if shown else None


def _photon_share(deviations: Array, means: Array) -> float:
    """Share of the variance at white that grows with brightness, by a line through the quietest
    tiles of each brightness; 0 if the brightness hardly varies.
    """
    edges = np.quantile(means, np.linspace(0, 1, 7))
    levels, variances = [], []
    for low, high in pairwise(edges):
        chosen = (means >= low) & (means <= high)
        if chosen.sum() >= 8:
            levels.append((means[chosen].mean() + 1) / 2)
            variances.append(np.quantile(deviations[chosen], 0.2) ** 2)
    if len(levels) < 3 or max(levels) - min(levels) < 0.25:
        return 0.0
    slope, constant = np.polyfit(levels, variances, 1)
    return float(slope / max(slope + constant, 1e-9)) if slope > 0 else 0.0
