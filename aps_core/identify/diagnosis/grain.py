"""Strength and kind of a picture's noise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aps_core.identify.diagnosis.thresholds import NOISE
from aps_core.imaging.noise_level import (
    LOW_DECILE,
    clipped_noise,
    doubted,
    estimate_noise,
    noisy_tiles,
    patch_side,
    smoothed_noise,
)

Array = NDArray[np.float64]
Pixels = NDArray[np.uint8]

QUIETEST = 1.15
"""True variance relative to that of the quietest tiles, to which the line is fitted."""


class Grain(NamedTuple):
    """Noise of a picture."""

    sigma: float
    """Lowest standard deviation in the picture, on the [-1, 1] scale."""
    peak: float | None
    """Mean photon count of a white pixel; None if the noise does not grow with brightness."""


def measured(parts: Sequence[Pixels], compressed: bool) -> Grain | None:
    """Noise of a picture; None if too few areas show it.

    If nearly all pixels are black or white, noise is estimated from its clipped remains, except in
    a JPEG, which has ripples around letters.

    Args:
        parts: crops (H, W, 3) of the picture.
        compressed: whether there are traces of JPEG.
    """
    values = [np.moveaxis(part, 2, 0) / 127.5 - 1 for part in parts]
    tiles = [tile for y_CHW in values for tile in noisy_tiles(y_CHW, side=patch_side(y_CHW))]
    if len(tiles) >= NOISE.tiles:
        deviations, means = np.array(tiles).T
        sigma = float(np.quantile(deviations, 0.1)) / LOW_DECILE
        smoothed = [smoothed_noise(y_CHW, sigma) for y_CHW in values]
        if all(smoothed):
            return Grain(min(each for each in smoothed if each), None)
        if (weakest := min(doubted(y_CHW, sigma) for y_CHW in values)) < sigma:
            return Grain(weakest, None)
        # JPEG changes how noise depends on brightness
        return Grain(sigma, None if compressed else _photon_count(deviations, means))
    shown = [] if compressed else [y for y in values if clipped_noise(y) is not None]
    return Grain(min(map(estimate_noise, shown)), None) if shown else None


def _photon_count(deviations: Array, means: Array) -> float | None:
    """Mean photon count of a white pixel, from a line fitted to the variance of the quietest tiles
    at each brightness; None if brightness hardly varies or variance does not grow with it.
    """
    edges = np.quantile(means, np.linspace(0, 1, min(7, 1 + len(means) // 6)))
    chosen = [(means >= low) & (means <= high) for low, high in pairwise(edges)]
    levels = np.array([(means[each].mean() + 1) / 2 for each in chosen])
    variances = np.array([np.quantile(deviations[each], 0.2) ** 2 for each in chosen])
    if len(levels) < NOISE.brightness_levels or np.ptp(levels) < NOISE.brightness_range:
        return None
    slope, constant = np.polyfit(levels, variances, 1)
    if constant < 0:
        slope, constant = levels @ variances / (levels @ levels), 0.0
    left = np.square(variances - slope * levels - constant).sum()
    if (
        slope <= 0
        or slope < NOISE.photon_share * (slope + constant)
        or left > (1 - NOISE.straightness) * _spread(variances)
    ):
        return None
    return float(4 / (QUIETEST * slope))  # the variance at white is 4 / peak


def _spread(values: Array) -> float:
    return float(np.square(values - values.mean()).sum())
