"""Classifier of documents and photographs by brightness and colours.

A small network reads statistics of crops: the number of tones and colours, the distribution of
contrast over scales and areas, and periodicity along rows and columns, which lines of text have. It
was trained on degraded and badly exposed pictures of both kinds
(``training/diagnosis/content.py``).
Brightness is in [-1, 1]; arrays are float64.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from aps_core.identify.diagnosis import perceptron
from aps_core.imaging.images import LUMA

Array = NDArray[np.float64]
Pixels = NDArray[np.uint8]

NETWORK = "content"
TONES, RELATIVE_TONES, COMMON = 32, 12, 10
"""Number of brightness bins, absolute and within the picture's range, and of the fullest absolute
bins that are used.
"""
AREAS = (4, 8, 16)
"""Sides in pixels of areas whose means are compared."""
BLOCK = 8
"""Side in pixels of the blocks whose contrast is measured."""
FLATTEST = 0.3
"""Share of the blocks, those of lowest contrast, that count as flat; in a page they are paper."""
LAGS = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
"""Distances in pixels at which rows and columns are compared."""
LEAST = 1e-3
"""Added before logarithms: far below one grey level."""
# levels of quantiles
EXTREMES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
SPREAD = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
CALM = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9)


def document(crops: list[Pixels]) -> float:
    """Logit that crops (h, w, 3) of one picture show a document, page or screen."""
    mean = np.mean([features(crop) for crop in crops], axis=0)
    return float(perceptron.answer(NETWORK, mean).item())


def features(rgb: Pixels) -> Array:
    """Inputs of the network (139,) for a crop (h, w, 3) of at least 48 pixels a side."""
    x = rgb / 127.5 - 1
    y = x @ np.array(LUMA)
    return np.concatenate(
        [
            _tones(y),
            _colours(x[..., 2] - y, x[..., 0] - y),
            *(_slopes(_squares(y, side).mean((1, 3))) for side in AREAS),
            _blocks(y),
            _detail(y),
            *(_repetition(y.mean(axis), float(y.std())) for axis in (0, 1)),
        ]
    )


def _tones(y: Array) -> Array:
    """Distribution of brightness: on paper, few tones are frequent."""
    shares = np.histogram(y, TONES, (-1, 1))[0] / y.size
    levels = np.quantile(y, EXTREMES)
    span = max(levels[-1] - levels[0], 0.02)
    relative = np.histogram((y - levels[0]) / span, RELATIVE_TONES, (0, 1))[0] / y.size
    common = np.sort(shares)[: -COMMON - 1 : -1]
    return np.concatenate([np.sqrt(shares), np.sqrt(common), levels, np.sqrt(relative)])


def _colours(blue: Array, red: Array) -> Array:
    """Saturation, and how closely the colours lie on one line."""
    saturation = np.quantile(np.hypot(blue, red), SPREAD)
    return np.array([*saturation, blue.std(), red.std(), _correlation(blue, red)])


def _slopes(areas: Array) -> Array:
    """Differences between neighbouring areas, and the ratio of horizontal to vertical ones."""
    beside, below = np.abs(np.diff(areas, axis=1)), np.abs(np.diff(areas, axis=0))
    both = np.quantile(np.concatenate([beside.ravel(), below.ravel()]), SPREAD)
    leaning = math.log((beside.mean() + LEAST) / (below.mean() + LEAST))
    return np.array([*np.log(both + LEAST), leaning])


def _blocks(y: Array) -> Array:
    """Contrast of blocks, and the spread of the flattest, which is small on paper."""
    blocks = _squares(y, BLOCK)
    contrast, means = blocks.std((1, 3)), blocks.mean((1, 3))
    flat = means[contrast <= np.quantile(contrast, FLATTEST)]
    return np.array(
        [
            *np.log(np.quantile(contrast, CALM) + LEAST),
            flat.std(),
            means.std(),
            abs(np.median(flat) - np.quantile(y, 0.95)),
            flat.mean() - means.mean(),
            _correlation(contrast, means),
            _skewness(means),
        ]
    )


def _detail(y: Array) -> Array:
    """Strength of the finest detail, and whether it consists of few strong or many weak edges."""
    around = y[:-2, 1:-1] + y[2:, 1:-1] + y[1:-1, :-2] + y[1:-1, 2:]
    fine = y[1:-1, 1:-1] - around / 4
    peaked = float((fine**4).mean() / (fine.var() + 1e-6) ** 2) ** 0.25
    return np.array([math.log(fine.std() + LEAST), _skewness(fine), peaked, _skewness(y)])


def _repetition(profile: Array, contrast: float) -> Array:
    """Autocorrelation of the means of rows or columns, and their contrast relative to the
    picture's.
    """
    centred = profile - profile.mean()
    variance = float((centred**2).mean())
    alike = [(centred[:-lag] * centred[lag:]).mean() / (variance + 1e-5) for lag in LAGS]
    return np.array([*alike, math.log((math.sqrt(variance) + LEAST) / (contrast + LEAST))])


def _squares(y: Array, side: int) -> Array:
    """Blocks (rows, side, columns, side); incomplete ones at the border are dropped."""
    height, width = (length // side for length in y.shape)
    return y[: height * side, : width * side].reshape(height, side, width, side)


def _correlation(a: Array, b: Array) -> float:
    """Correlation coefficient; 0 if either input hardly varies."""
    if min(a.std(), b.std()) < LEAST:
        return 0.0
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def _skewness(values: Array) -> float:
    return float(((values - values.mean()) ** 3).mean() / (values.std() + LEAST) ** 3)
