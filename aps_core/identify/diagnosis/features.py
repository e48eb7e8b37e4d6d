"""Features of spectrum and edges for the blur estimator.

A blur multiplies the spectrum by its transfer function and widens edges; a movement does both in
one direction only. Enlarging removes high frequencies and adds a period. Arrays are float64;
luminance is in [-1, 1]; frequencies are in cycles per pixel.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RADII, ANGLES = 24, 16
"""Numbers of bins of the polar spectrum: frequencies up to 0.5, directions over 180 degrees."""
SCALES = (1.0, 1.6, 2.5, 4.0, 6.5)
"""Standard deviations in pixels of the Gaussians after which edges are compared."""
PERIODS = (2, 3, 4, 5, 6, 8)
"""Periods in pixels that enlarging may add."""
MARGIN = 8
"""Border of a crop in pixels in which edges are ignored."""
STRONG = 0.04
"""Share of pixels, the steepest, that count as edges."""
EMPTY = 1e-7
"""Added to powers before their logarithm; lower than the power of 8-bit rounding."""


class Features(NamedTuple):
    """Features of one picture."""

    spectrum_RA: Array
    """Logarithm of the power at every frequency and direction, relative to low frequencies."""
    edges: Array
    """Quantiles of the edges' loss of steepness under wider Gaussians, and medians by direction."""
    others: Array
    """Contrast, strength of each of :data:`PERIODS`, and statistics of the tones."""

    def vector(self) -> Array:
        """All features in one vector."""
        return np.concatenate([self.spectrum_RA.ravel(), self.edges, self.others])


def features(crops: list[Array]) -> Features:
    """Features of crops (h, w) of one picture, at least 48 pixels a side."""
    power_RA = np.mean([_polar_power(crop) for crop in crops], axis=0)
    logarithm_RA = np.log(power_RA + EMPTY)
    contrast = logarithm_RA[:3].mean()
    edges = [_edges(crop) for crop in crops]
    periods = np.mean([_periods(crop) for crop in crops], axis=0)
    return Features(
        logarithm_RA - contrast,
        np.mean(edges, axis=0),
        np.concatenate([[contrast], periods, _tones(crops)]),
    )


def _polar_power(crop: Array) -> Array:
    """Power (RADII, ANGLES) of a windowed crop; white noise of variance v has power v."""
    height, width = crop.shape
    window = np.hanning(height + 2)[1:-1, None] * np.hanning(width + 2)[None, 1:-1]
    centred = crop - (crop * window).sum() / window.sum()
    power = np.abs(np.fft.rfft2(centred * window)) ** 2 / (window**2).sum()
    bins, weights = _polar_bins(height, width)
    size = RADII * ANGLES
    total = np.bincount(bins.ravel(), (weights * power.ravel()).ravel(), size)
    count = np.bincount(bins.ravel(), weights.ravel(), size)
    total, count = total.reshape(RADII, ANGLES), count.reshape(RADII, ANGLES)
    # in small crops, directions without a frequency of their own get the mean of their radius
    mean_R1 = total.sum(1, keepdims=True) / count.sum(1, keepdims=True)
    averaged: Array = (total + 0.5 * mean_R1) / (count + 0.5)
    return averaged


@lru_cache(maxsize=8)
def _polar_bins(height: int, width: int) -> tuple[NDArray[np.int64], Array]:
    """Polar bins of every frequency of a real transform, and their bilinear weights, (4, n)."""
    down, right = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None]
    radius = np.hypot(down, right).ravel() * 2 * RADII - 0.5
    angle = (np.arctan2(-down, right) % np.pi).ravel() / np.pi * ANGLES
    ring, sector = np.floor(radius), np.floor(angle)
    bins, weights = [], []
    for r, r_weight in ((ring, ring + 1 - radius), (ring + 1, radius - ring)):
        for a, weight in ((sector, sector + 1 - angle), (sector + 1, angle - sector)):
            inside = (r >= 0) & (r < RADII) & (radius > 0)
            bins.append(np.where(inside, r * ANGLES + a % ANGLES, 0).astype(np.int64))
            weights.append(np.where(inside, r_weight * weight, 0.0))
    return np.array(bins), np.array(weights)


def _edges(crop: Array) -> Array:
    """Loss of steepness of the strongest edges under each Gaussian of :data:`SCALES`.

    After a Gaussian blur of width b, a Gaussian of width s leaves ``sqrt((b^2 + 1) / (b^2 + s^2))``
    of a step edge's steepness under one of width 1. Other blurs depend on s differently.
    """
    down, right = np.fft.fftfreq(crop.shape[0])[:, None], np.fft.rfftfreq(crop.shape[1])[None]
    spectrum, squared = np.fft.rfft2(crop), down**2 + right**2
    inner = (slice(MARGIN, -MARGIN),) * 2
    slopes = []
    for scale in SCALES:
        smooth = spectrum * np.exp(-2 * (np.pi * scale) ** 2 * squared)
        dy, dx = (
            np.fft.irfft2(2j * np.pi * f * smooth, crop.shape)[inner].ravel() for f in (down, right)
        )
        slopes.append((dy, dx))
    steepness = [np.hypot(dy, dx) for dy, dx in slopes]
    chosen = np.argsort(steepness[1])[-max(40, int(STRONG * len(steepness[1]))) :]
    first = steepness[0][chosen] + 1e-6
    losses = [np.log((steep[chosen] + 1e-6) / first) for steep in steepness[1:]]
    quantiles = np.concatenate([np.quantile(loss, (0.1, 0.5, 0.9)) for loss in losses])
    dy, dx = slopes[1][0][chosen], slopes[1][1][chosen]
    direction = (np.arctan2(-dy, dx) % np.pi / np.pi * 8).astype(int) % 8
    middle = quantiles[4]
    by_direction = [
        np.median(losses[1][direction == d]) - middle if (direction == d).sum() >= 12 else 0.0
        for d in range(8)
    ]
    return np.concatenate([quantiles, by_direction, [np.log(first.mean())]])


def _periods(crop: Array) -> Array:
    """Strength of each period in the second derivative along rows and columns, relative to the
    median of all frequencies.
    """
    found = np.zeros(len(PERIODS))
    for turned in (crop, crop.T):
        second = np.abs(2 * turned[:, 1:-1] - turned[:, :-2] - turned[:, 2:]).mean(0)
        strength = np.abs(np.fft.rfft((second - second.mean()) * np.hanning(len(second))))
        usual = np.median(strength) + 1e-9
        for i, period in enumerate(PERIODS):
            at = round(len(second) / period)
            found[i] += np.log((strength[max(1, at - 1) : at + 2].max() + 1e-9) / usual)
    return found / 2


def _tones(crops: list[Array]) -> Array:
    """Entropy of the luminance in nats, and the share of its most frequent bin: paper and screens
    have few tones.
    """
    values = np.concatenate([crop.ravel() for crop in crops])
    share = np.histogram(values, 32, (-1, 1))[0] / values.size
    positive = share[share > 0]
    return np.array([-(positive * np.log(positive)).sum(), share.max()])
