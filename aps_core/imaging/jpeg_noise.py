"""Estimates the noise that a picture had before JPEG rounded it. Needs no torch.

JPEG removes most of a weak noise by rounding and smooths its colours, so the pixels no longer show
its strength. The number of non-zero cosine coefficients does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from aps_core.imaging.images import LUMA
from aps_core.imaging.noise_level import SATURATED

Array = NDArray[np.float64]

LEVELS = np.concatenate([[0.0], np.geomspace(0.4, 40, 60)])
"""Candidate standard deviations, in levels of 8 bits."""
COSINES_88 = np.cos(np.pi / 8 * np.outer(np.arange(8), np.arange(8) + 0.5)) / 2
COSINES_88[0] /= math.sqrt(2)
"""The orthonormal cosine transform of 8 values."""
MOST = 15
"""Upper bound on rounded coefficients; larger ones count as this."""
BANDS = ((2, 5), (5, 7), (7, 9), (9, 14))
"""Ranges of the sum of vertical and horizontal frequency. White noise is equal in all; remaining
texture adds to some.
"""
DOUBT = 2.0
"""Largest difference in log-likelihood from the most likely deviation."""
QUIETEST, FEWEST = 0.15, 8
"""Share of blocks assumed to contain only noise, and their minimum number."""
MOST_BLOCKS = 10_000
"""Maximum number of blocks examined; more would only take time."""
COARSE, ALIGNED = 6, 0.12
"""Smallest step, in levels, of the coefficients examined; and the largest mean distance from
multiples of the step, in steps, at which blocks are aligned with the file's grid. Without alignment
it is 0.25.
"""


def noise_before_jpeg(rgb_HWC: NDArray[np.uint8], steps: Sequence[int]) -> float:
    """Estimates the standard deviation of white noise on the [-1, 1] scale; 0 if there is none, or
    if too few blocks are usable.

    Half of the frequencies select blocks without texture; the other half measure their noise.

    Args:
        rgb_HWC: the decoded JPEG.
        steps: quantisation steps of the 64 luminance coefficients, row by row, in levels of 8 bits.
    """
    coefficients_N88 = _coefficients(rgb_HWC)
    steps_88 = np.array(steps, dtype=np.float64).reshape(8, 8)
    if len(coefficients_N88) < FEWEST:
        return 0.0
    rounded_N88 = np.rint(coefficients_N88 / steps_88)
    apart_N88 = np.abs(coefficients_N88 / steps_88 - rounded_N88)
    coarse = apart_N88[(rounded_N88 != 0) & (steps_88 >= COARSE)]
    if coarse.size and coarse.mean() > ALIGNED:
        return 0.0
    height_88 = np.add.outer(np.arange(8), np.arange(8))
    even_88 = (height_88 % 2 == 0) & (height_88 > 0)
    texture_N = LEVELS[_log_likelihood(rounded_N88, steps_88, even_88).argmax(1)]
    count = max(FEWEST, math.ceil(QUIETEST * len(texture_N)))
    quiet = np.argsort(texture_N, kind="stable")[:count]
    deviation = min(
        _largest_likely(_log_likelihood(rounded_N88[quiet], steps_88, band_88).sum(0))
        for low, high in BANDS
        for band_88 in [~even_88 & (height_88 >= low) & (height_88 < high)]
    )
    grey = bool((rgb_HWC == rgb_HWC[..., :1]).all())
    return deviation / 127.5 / (1.0 if grey else math.hypot(*LUMA))


def _largest_likely(likelihood_S: Array) -> float:
    """Largest of :data:`LEVELS` that is about as likely as the most likely one."""
    return float(LEVELS[np.flatnonzero(likelihood_S >= likelihood_S.max() - DOUBT)[-1]])


def _coefficients(rgb_HWC: NDArray[np.uint8]) -> Array:
    """Cosine coefficients (N, 8, 8) of the luminance of blocks without saturated pixels, at most
    :data:`MOST_BLOCKS`, evenly spread.
    """
    rows, columns = rgb_HWC.shape[0] // 8, rgb_HWC.shape[1] // 8
    step = max(1, math.ceil(rows * columns / MOST_BLOCKS))
    row_N, column_N = np.divmod(np.arange(0, rows * columns, step), max(1, columns))
    whole = rgb_HWC[: 8 * rows, : 8 * columns].reshape(rows, 8, columns, 8, 3)
    blocks_N88 = whole[row_N, :, column_N].astype(np.float64) @ np.array(LUMA)
    inside = np.abs(blocks_N88 / 127.5 - 1).max((1, 2), initial=0) < SATURATED
    made: Array = COSINES_88 @ (blocks_N88[inside] - 128) @ COSINES_88.T
    return made


def _log_likelihood(rounded_N88: Array, steps_88: Array, chosen_88: NDArray[np.bool_]) -> Array:
    """Log-likelihood (N, S) of every block's chosen coefficients under all of :data:`LEVELS`."""
    total_NS = np.zeros((len(rounded_N88), len(LEVELS)))
    for row, column in np.argwhere(chosen_88):
        number_N = np.minimum(np.abs(rounded_N88[:, row, column]), MOST).astype(int)
        total_NS += _table(float(steps_88[row, column]))[number_N]
    return total_NS


@lru_cache(maxsize=512)
def _table(step: float) -> Array:
    """Log-probability of every rounded coefficient up to :data:`MOST`, (MOST + 1, S)."""
    edges_K = (np.arange(MOST + 2) - 0.5) * step
    spread_S = np.hypot(LEVELS, 0.3)  # decoding also rounds
    below_KS = np.vectorize(NormalDist().cdf)(edges_K[:, None] / spread_S)
    mass_KS = np.diff(below_KS, axis=0)
    mass_KS[-1] = 1 - below_KS[-2]
    made: Array = np.log(np.maximum(mass_KS, 1e-12))
    return made
