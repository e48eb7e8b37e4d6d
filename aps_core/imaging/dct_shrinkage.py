"""Shrinkage in the cosine transform: classical denoising of a picture.

Every block of 8x8 pixels is transformed (DCT). Coefficients below a threshold are set to 0, and the
overlapping blocks are averaged (Yu & Sapiro 2011, "DCT image denoising: a simple and effective
image denoising algorithm"). A second pass uses the result as estimate of the clean picture, and
weights every coefficient by the share of its energy that is not noise (empirical Wiener filter).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from aps_core.imaging.resampling import mirror_pad
from aps_core.numerics.likelihood import Pixels

SIDE = 8
"""Side of a block, in pixels."""
THRESHOLD = 2.7
"""Threshold of the first pass, in standard deviations of white noise."""
Places = Sequence[tuple[int, int]]
"""Rows and columns at which grids of blocks begin."""
ALL_PLACES: Places = tuple((top, left) for top in range(SIDE) for left in range(SIDE))
"""All shifts of the grid of blocks."""


def some_places(number: int) -> Places:
    """Four places, half a block apart, which differ from round to round: a sixteenth of the work of
    :data:`ALL_PLACES`.

    Args:
        number: number of the round.
    """
    apart = SIDE // 2
    top, left = number % apart, (number + number // apart) % apart
    return tuple((top + i, left + j) for i in (0, apart) for j in (0, apart))


def shrunk(
    y_BCHW: Tensor,
    sigma: float | Tensor,
    places: Places = ALL_PLACES,
    threshold: float = THRESHOLD,
) -> Tensor:
    """Removes white noise from pictures (B, 3, H, W); may slightly exceed the range of ``y``.

    Args:
        y_BCHW: noisy pictures of any size.
        sigma: standard deviation of the noise, > 0, one for all or one per picture (B,).
        places: shifts of the grid of blocks over which the result is averaged.
        threshold: see :data:`THRESHOLD`.
    """
    mix_CC = cosines(3, y_BCHW)  # brightness, and two differences of colours
    y_BCHW = torch.einsum("dc,bchw->bdhw", mix_CC, y_BCHW)
    x_BCHW = _averaged(y_BCHW, None, sigma, places, threshold)
    x_BCHW = _averaged(y_BCHW, x_BCHW, sigma, places, threshold)
    return torch.einsum("dc,bdhw->bchw", mix_CC, x_BCHW)


def without_noise(seen: Pixels, filled_BCHW: Tensor) -> Tensor:
    """Denoises measured pixels, after inserting ``filled`` where they were clipped or not measured;
    pictures (B, 3, H, W) in [-1, 1].
    """
    noisy_BCHW = seen.y_BCHW.where(seen.known_BCHW, filled_BCHW)
    return shrunk(noisy_BCHW, seen.sigma).clamp(-1, 1)


def _averaged(
    y_BCHW: Tensor,
    guide_BCHW: Tensor | None,
    sigma: float | Tensor,
    places: Places,
    threshold: float,
) -> Tensor:
    """Shrinks blocks at all places and averages them; those that keep less noise weigh more.

    ``guide`` is the clean estimate for the Wiener gains; without it, coefficients below the
    threshold are set to 0.
    """
    height, width = y_BCHW.shape[2:]
    rows, columns = (-(-(side + SIDE - 1) // SIDE) for side in (height, width))
    beyond = [(SIDE - 1, SIDE * n - side) for n, side in ((rows, height), (columns, width))]
    y_BCHW = mirror_pad(y_BCHW, *beyond)
    if guide_BCHW is not None:
        guide_BCHW = mirror_pad(guide_BCHW, *beyond)
    dct = cosines(SIDE, y_BCHW)
    dct_KK = torch.kron(dct, dct)
    total_BCHW, weights_BCHW = torch.zeros_like(y_BCHW), torch.zeros_like(y_BCHW)
    noise = sigma.view(-1, 1, 1, 1, 1) if isinstance(sigma, Tensor) else sigma
    for top, left in places:
        rows_on, columns_on = slice(top, top + SIDE * rows), slice(left, left + SIDE * columns)
        place = (..., rows_on, columns_on)
        y_BChwK = _squares(y_BCHW[place]) @ dct_KK.T
        if guide_BCHW is None:
            gain_BChwK = (y_BChwK.square() > (threshold * noise) ** 2).to(y_BChwK)
        else:
            energy_BChwK = (_squares(guide_BCHW[place]) @ dct_KK.T).square()
            gain_BChwK = energy_BChwK / (energy_BChwK + noise**2)
        gain_BChwK[..., 0] = 1  # keeps the mean of a block
        weight_BChw1 = 1 / gain_BChwK.square().sum(-1, keepdim=True)
        x_BChwK = weight_BChw1 * ((gain_BChwK * y_BChwK) @ dct_KK)
        total_BCHW[place] += _picture(x_BChwK)
        weights_BCHW[place] += _picture(weight_BChw1.expand_as(x_BChwK))
    inside = (..., slice(SIDE - 1, SIDE - 1 + height), slice(SIDE - 1, SIDE - 1 + width))
    return total_BCHW[inside] / weights_BCHW[inside]


def _squares(x_BCHW: Tensor) -> Tensor:
    """Splits pictures into adjacent blocks (B, C, h, w, K) of K = 64 pixels."""
    x_BChpwq: Tensor = x_BCHW.unflatten(3, (-1, SIDE)).unflatten(2, (-1, SIDE))
    return x_BChpwq.transpose(3, 4).flatten(4)


def _picture(x_BChwK: Tensor) -> Tensor:
    """Inverse of :func:`_squares`."""
    x_BChpwq: Tensor = x_BChwK.unflatten(4, (SIDE, SIDE)).transpose(3, 4)
    return x_BChpwq.flatten(4).flatten(2, 3)


def cosines(n: int, like: Tensor) -> Tensor:
    """The orthonormal cosine transform (n, n) of n values."""
    k = torch.arange(n, dtype=torch.float32, device=like.device)
    matrix = torch.cos((2 * k + 1) * k[:, None] * math.pi / (2 * n)) * math.sqrt(2 / n)
    matrix[0] /= math.sqrt(2)
    return matrix.to(like.dtype)
