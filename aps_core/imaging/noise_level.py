"""Estimates the noise of a picture. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from aps_core.imaging.images import LUMA

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

QUANTISATION = 2 / 255 / 12**0.5
"""Standard deviation of the rounding error of an 8-bit picture on the [-1, 1] scale."""
SATURATED = 0.985
"""Larger absolute values (within about two grey levels of black or white) were probably clipped and
carry less noise.
"""
TILE = 32
"""Side in pixels of the tiles in which noise is estimated; tiles overlap by half."""
CLIPPED_TILE = 8
"""Side in pixels of the tiles of white paper or black ground; small enough to lie between lines."""
SMOOTHED, SMOOTHED_SHARE = 0.035, 0.46
"""Smallest estimate at half the resolution that indicates noise with smoothed colours, and the
share of the noise that it measures.
"""
LEAST_TILES = 9
"""Minimum number of tiles at half the resolution; with fewer, all may have texture."""
BLOCKS, BLOCK, WEAKEST = 16, 8, 0.02
"""Blocks of the spectrum along each axis, minimum pixels of a side per block, and the quantile of
their powers that counts as the weakest.
"""
DOUBTED = 0.4
"""If the weakest part of the spectrum has less than this share of an estimate, the estimate
measures texture. Clipping leaves white paper 0.58 of its noise, and the weakest of many blocks has
0.86 of the mean.
"""
LOW_DECILE = 0.95
"""Tenth percentile of the tiles' estimates in a picture of pure noise, relative to the true
deviation.
"""


def estimate_noise(y_CHW: Array, observed: Mask | None = None) -> float:
    """Standard deviation of white Gaussian noise in a picture, on the picture's scale.

    Small patches of a clean picture lie near a subspace, but noise is isotropic. The smallest
    eigenvalues of the patches' covariance therefore equal the noise variance (Chen, Zhu and Heng
    2015). Patches include all colours, whose details are correlated. The lowest decile over tiles
    excludes texture. Saturated and unobserved pixels are ignored; if single pixels are missing, a
    patch consists of three observed pixels in a row. The result is 0 if too few patches remain. On
    pages, where little but the edges of letters is unsaturated, the result is at most
    :func:`clipped_noise`, because structure can only raise the estimate.

    Noise must be independent between pixels and, unless the picture is grey, between colours. JPEG
    compression after the noise violates both: strong noise is still found after light compression
    (:func:`smoothed_noise`); specify sigma in other cases. Where a blur left texture in every
    patch, the weakest part of the spectrum is used (:func:`doubted`).

    Args:
        y_CHW: values on the [-1, 1] scale.
        observed: False where a value is unknown; broadcasts to the picture.
    """
    tiles = list(noisy_tiles(y_CHW, observed, patch_side(y_CHW, observed)))
    if len(tiles) >= 4:
        white = _lowest(tiles)
        if observed is not None:
            return white
        return smoothed_noise(y_CHW, white) or doubted(y_CHW, white)
    clipped = clipped_noise(y_CHW, observed)
    found = [] if clipped is None else [clipped]
    y, valid = _usable(y_CHW, observed)
    for shapes in (((3, 3),), ((1, 3), (3, 1))):
        pairs = [_patches(y, valid, shape) for shape in shapes]
        chosen = np.concatenate([patches[:, complete] for patches, complete in pairs], axis=1)
        if chosen.shape[1] >= 10 * chosen.shape[0]:
            found.append(float(np.sqrt(_noise_variance(np.cov(chosen)[None])[0])))
            break
    return min(found, default=0.0)


def smoothed_noise(y_CHW: Array, white: float) -> float | None:
    """Standard deviation of noise whose colours were smoothed, as JPEG does, on the picture's
    scale; None if it cannot be distinguished from a clean picture.

    The estimate from all colours uses their finest differences, where such noise is weak. Almost
    half of it remains at half the resolution, and all of it in brightness; but there, textures of
    clean pictures resemble noise. On 60 pictures, twice the estimate at half the resolution is up
    to 0.03 for clean ones, and 0.46 of the noise at JPEG quality 95.

    Args:
        y_CHW: values on the [-1, 1] scale.
        white: estimate from all colours.
    """
    if len(y_CHW) != 3 or (y_CHW == y_CHW[:1]).all():
        return None
    rows, columns = (side // 2 for side in y_CHW.shape[1:])
    blocks = y_CHW[:, : 2 * rows, : 2 * columns].reshape(3, rows, 2, columns, 2)
    coarse = list(noisy_tiles(blocks.mean((2, 4))))
    if len(coarse) < LEAST_TILES or (halved := 2 * _lowest(coarse)) < max(SMOOTHED, 2 * white):
        return None
    bright = list(noisy_tiles(np.tensordot(LUMA, y_CHW, 1)[None]))
    in_brightness = _lowest(bright) / float(np.linalg.norm(LUMA)) if len(bright) >= 4 else math.inf
    return min(in_brightness, halved / SMOOTHED_SHARE)


def doubted(y_CHW: Array, white: float) -> float:
    """Returns the estimate ``white``, or if the spectrum contradicts it, the deviation that the
    weakest part of the spectrum implies.

    White noise has equal power everywhere, and a blur leaves little else at high frequencies. The
    patches of blurred small type have no empty directions that would show this.
    """
    weakest = _weakest(y_CHW)
    return weakest if weakest < DOUBTED * white else white


def _weakest(y_CHW: Array) -> float:
    """Deviation of white noise with the power of the weakest part of the spectrum."""
    height, width = y_CHW.shape[1:]
    window = np.hanning(height + 2)[1:-1, None] * np.hanning(width + 2)[None, 1:-1]
    centred = (y_CHW - y_CHW.mean((1, 2), keepdims=True)) * window
    power = np.square(np.abs(np.fft.rfft2(centred))).mean(0) / np.square(window).sum()
    count = max(1, min(BLOCKS, height // BLOCK, width // BLOCK))
    down, right = np.abs(np.fft.fftfreq(height)), np.fft.rfftfreq(width)
    row, column = ((2 * count * each).astype(int).clip(max=count - 1) for each in (down, right))
    block = (row[:, None] * count + column).ravel()
    powers = np.bincount(block, power.ravel()) / np.bincount(block)
    return float(np.sqrt(np.quantile(powers, WEAKEST)))


def _lowest(tiles: list[tuple[float, float]]) -> float:
    """Noise of a picture from the estimates of its tiles."""
    return float(np.quantile([deviation for deviation, _ in tiles], 0.1)) / LOW_DECILE


def clipped_noise(y_CHW: Array, observed: Mask | None = None) -> float | None:
    """Standard deviation of the noise on white paper or black ground, where clipping removed one
    half of the values; None if less than a twentieth of the picture is such ground.

    The squared distance from white is then sigma^2 / 2 on average. Tiles with pixels beyond medium
    grey have ink on them; the lowest decile excludes fainter parts of letters.
    """
    channels, height, width = y_CHW.shape
    rows, columns = height // CLIPPED_TILE, width // CLIPPED_TILE
    y = y_CHW[:, : rows * CLIPPED_TILE, : columns * CLIPPED_TILE]
    known = np.ones_like(y) if observed is None else np.broadcast_to(observed, y_CHW.shape)
    known = known[:, : rows * CLIPPED_TILE, : columns * CLIPPED_TILE].astype(np.float64)

    def sums(values: Array) -> Array:
        tiles = values.reshape(channels, rows, CLIPPED_TILE, columns, CLIPPED_TILE)
        total: Array = tiles.sum((0, 2, 4)).ravel()
        return total

    count = sums(known).clip(min=1)
    deviations = []
    for limit in (1.0, -1.0):
        distance = np.abs(limit - y)
        blank = sums(known * (distance > 1)) == 0
        ground = blank & (sums(known * (distance < 1 - SATURATED)) >= 0.4 * count)
        deviations.append(np.sqrt(2 * sums(known * distance**2) / count)[ground])
    found = np.concatenate(deviations)
    if len(found) < max(4, rows * columns / 20):
        return None
    return float(np.quantile(found, 0.1)) / LOW_DECILE


def patch_side(y_CHW: Array, observed: Mask | None = None) -> int:
    """Side of the patches for :func:`noisy_tiles`: larger for grey pictures, which have no colours
    to compare, unless single pixels are missing.
    """
    return 5 if observed is None and bool((y_CHW == y_CHW[:1]).all()) else 3


def noisy_tiles(
    y_CHW: Array, observed: Mask | None = None, side: int = 3
) -> Iterator[tuple[float, float]]:
    """Noise deviation and mean value of every tile with enough usable pixels, by patches of
    ``side`` pixels squared.
    """
    y, valid = _usable(y_CHW, observed)
    for patches, complete in _bands(y, valid, side):
        chosen = complete.mean(1) >= 0.5
        if not chosen.any():
            continue
        columns, weights = patches[:, chosen].swapaxes(0, 1), complete[chosen].astype(np.float64)
        count = weights.sum(1)
        mean = (columns * weights[:, None]).sum(2) / count[:, None]
        centred = (columns - mean[..., None]) * weights[:, None]
        covariance = centred @ centred.swapaxes(1, 2) / (count - 1)[:, None, None]
        deviations = np.sqrt(_noise_variance(covariance))
        yield from zip(deviations.tolist(), mean.mean(1).tolist(), strict=True)


def _usable(y_CHW: Array, observed: Mask | None) -> tuple[Array, Mask]:
    """Channels used for the estimate, and mask (H, W) of pixels where all of them are observed and
    not saturated.
    """
    valid = np.abs(y_CHW) < SATURATED
    if observed is not None:
        valid = valid & observed
    if (y_CHW == y_CHW[:1]).all():  # grey: one channel is enough
        y_CHW, valid = y_CHW[:1], valid[:1]
    counts = valid.sum((1, 2))
    # in a picture of saturated colours, a channel can be clipped everywhere
    kept = counts * 2 >= counts.max()
    return y_CHW[kept], valid[kept].all(0)


def _patches(y_CHW: Array, valid_HW: Mask, shape: tuple[int, int]) -> tuple[Array, Mask]:
    """Every patch as a column, (C * kh * kw, H', W'), and whether all its pixels are valid, (H',
    W').
    """
    height, width = y_CHW.shape[1] - shape[0] + 1, y_CHW.shape[2] - shape[1] + 1
    if height < 1 or width < 1:
        return np.zeros((len(y_CHW) * shape[0] * shape[1], 0, 0)), np.zeros((0, 0), dtype=bool)
    windows = sliding_window_view(y_CHW, shape, (1, 2))
    patches = windows.transpose(0, 3, 4, 1, 2).reshape(-1, height, width)
    complete: Mask = np.asarray(sliding_window_view(valid_HW, shape).all((2, 3)))
    return patches, complete


def _bands(y_CHW: Array, valid_HW: Mask, side: int) -> Iterator[tuple[Array, Mask]]:
    """Square patches of one row of tiles at a time, which limits memory: values (D, tiles, n) and
    validity (tiles, n).
    """
    high = TILE + side - 1
    if min(valid_HW.shape) < high:
        return
    for top in range(0, valid_HW.shape[0] - high + 1, TILE // 2):
        rows = slice(top, top + high)
        patches, complete = _patches(y_CHW[:, rows], valid_HW[rows], (side, side))
        tiles = sliding_window_view(patches, TILE, 2)[:, :, :: TILE // 2]
        valid = sliding_window_view(complete, TILE, 1)[:, :: TILE // 2]
        count = tiles.shape[2]
        yield (
            tiles.transpose(0, 2, 1, 3).reshape(len(patches), count, -1),
            valid.transpose(1, 0, 2).reshape(count, -1),
        )


def _noise_variance(covariance: Array) -> Array:
    """Noise variance (N,) from covariances (N, D, D).

    It is the mean of the longest run of smallest eigenvalues whose mean does not exceed their
    median. The mean exceeds the median once eigenvalues of picture structure are included.
    """
    values = np.linalg.eigvalsh(covariance).clip(min=0)
    count = np.arange(1, values.shape[1] + 1)
    mean = values.cumsum(1) / count
    median = (values[:, (count - 1) // 2] + values[:, count // 2]) / 2
    longest = ((mean <= median * (1 + 1e-6)) * count).max(1) - 1
    chosen: Array = np.take_along_axis(mean, longest[:, None], 1)[:, 0]
    return chosen
