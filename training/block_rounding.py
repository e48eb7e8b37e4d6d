"""What is known of a picture from its JPEG: every cosine coefficient of its blocks with a precision
of its own, as in :class:`aps_core.operators.jpeg.RoundingNoise`, for many JPEGs at once.

Shapes: B pictures, C = 3 of luminance and chroma. Precisions of pictures that are no JPEG are 0.
Blocks are taken to begin at the corner of a crop, wherever they do: it changes little.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import torch
from torch import Tensor

from aps_core.operators.jpeg import TO_YCC, RoundingNoise, block_coefficients


def precision(noise: RoundingNoise | None) -> Tensor:
    """Inverse variances (3, 8, 8) of coefficients, for pictures in [-1, 1]."""
    return torch.zeros(3, 8, 8) if noise is None else noise.precision_C88


def negative_log_likelihood(precision_BC88: Tensor, off_BCHW: Tensor) -> Tensor:
    """Of errors of pictures (B,), in nats."""
    ycc_BCHW = torch.cat([_mixed(off_BCHW, row) for row in TO_YCC], 1)
    squares = block_coefficients(ycc_BCHW).square() * precision_BC88[:, :, None, None]
    return squares.flatten(1).sum(1) / 2


def pull(precision_BC88: Tensor, off_BCHW: Tensor) -> Tensor:
    """How errors of pictures pull at their brightness (B, 1, H, W): the negative gradient."""
    # a change of brightness changes no chroma
    return information(precision_BC88, _mixed(off_BCHW, TO_YCC[0]))


def information(precision_BC88: Tensor, change_B1HW: Tensor) -> Tensor:
    """Product of the Hessian matrix with changes of brightness (B, 1, H, W)."""
    with torch.enable_grad():
        known = torch.func.vjp(block_coefficients, change_B1HW)
        product_B1HW: Tensor = known[1](precision_BC88[:, :1, None, None] * known[0])[0]
    return product_B1HW


def _mixed(x_BCHW: Tensor, weights: tuple[float, ...]) -> Tensor:
    """The weighted sum of the colours (B, 1, H, W). Weights are numbers, because a CUDA graph
    cannot record a tensor that comes from the host.
    """
    parts = (weight * x_BCHW[:, i : i + 1] for i, weight in enumerate(weights))
    return reduce(add, parts)
