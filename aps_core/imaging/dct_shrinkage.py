"""Shrinkage in the cosine transform: the classical estimate of a picture from its noisy pixels.

Every square of 8 pixels is transformed (DCT). Coefficients that noise explains are dropped, and the
overlapping squares averaged (Yu & Sapiro 2011, "DCT image denoising: a simple and effective image
denoising algorithm"). A second pass takes the result for the truth, and weighs every coefficient by
the share of its energy that is not noise (empirical Wiener filter).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from aps_core.imaging.resampling import mirror_pad
from aps_core.numerics.likelihood import Pixels

SIDE = 8
"""Of the squares in pixels."""
THRESHOLD = 2.7
"""In standard deviations of white noise; coefficients below it are dropped in the first pass."""
Places = Sequence[tuple[int, int]]
ALL_PLACES: Places = tuple((top, left) for top in range(SIDE) for left in range(SIDE))
"""Rows and columns at which a grid of squares may begin."""


def some_places(number: int) -> Places:
    """Four of them, half a square apart, and with another ``number`` others: for a sixteenth of the
    work in each of several rounds.
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
    """Pictures of any size and three colours without their white noise of standard deviation
    ``sigma`` > 0, one for all or one for each (B,). The values are nearly in the range of
    ``y_BCHW``. ``places``: of the squares. ``threshold``: see :data:`THRESHOLD`.
    """
    mix_CC = cosines(3, y_BCHW)  # brightness, and two differences of colours
    y_BCHW = torch.einsum("dc,bchw->bdhw", mix_CC, y_BCHW)
    x_BCHW = _averaged(y_BCHW, None, sigma, places, threshold)
    x_BCHW = _averaged(y_BCHW, x_BCHW, sigma, places, threshold)
    return torch.einsum("dc,bdhw->bchw", mix_CC, x_BCHW)


def without_noise(seen: Pixels, filled_BCHW: Tensor) -> Tensor:
    """Pictures (B, 3, H, W) in [-1, 1] of the pixels that were measured, with their noise shrunk;
    the others, which were clipped or not measured, are those of ``filled``.
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
    """The mean over all places of the squares, which counts those most that keep least noise.
    ``guide``: of the gains of ``y``'s coefficients; without it, those below the threshold are
    dropped.
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
        gain_BChwK[..., 0] = 1  # the mean of a square
        weight_BChw1 = 1 / gain_BChwK.square().sum(-1, keepdim=True)
        x_BChwK = weight_BChw1 * ((gain_BChwK * y_BChwK) @ dct_KK)
        total_BCHW[place] += _picture(x_BChwK)
        weights_BCHW[place] += _picture(weight_BChw1.expand_as(x_BChwK))
    inside = (..., slice(SIDE - 1, SIDE - 1 + height), slice(SIDE - 1, SIDE - 1 + width))
    return total_BCHW[inside] / weights_BCHW[inside]


def _squares(x_BCHW: Tensor) -> Tensor:
    """Squares side by side (B, C, h, w, K) of K = 64 pixels."""
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
