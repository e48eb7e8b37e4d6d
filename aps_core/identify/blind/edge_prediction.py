"""Candidates for a kernel, by alternating estimates of a sharp picture with few edges and a kernel.

The picture minimises its misfit to the blurred one plus a penalty on the number of pixels with a
gradient (L0 norm); the kernel is then a least-squares problem (Xu, Zheng & Jia 2013, "Unnatural L0
sparse representation for natural image deblurring"; Pan et al. 2014 for text). Both are maximised,
not integrated out, so the results are only candidates: their evidence decides between them
(:mod:`aps_core.identify.blind.sparse_gradients`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from aps_core.identify.blind.kernel import connected
from aps_core.identify.blind.thresholds import WEIGHT
from aps_core.imaging.filters import fast_length
from aps_core.imaging.resampling import mirror_pad
from aps_core.numerics import conjugate_gradients

WEAKER = 1.1
"""Factor by which the edge penalty falls from round to round."""
LEAST_PRICE = 1e-4
"""Smallest edge penalty."""
KERNEL_PRICE = 2.0
"""Penalty on the squares of the kernel's weights."""
STRICTEST = 1e5
"""Coupling weight at which half-quadratic splitting stops."""
CONJUGATE_STEPS = 25


def predicted(y_HW: Tensor, kernel_KK: Tensor, price: float, rounds: int) -> Tensor:
    """Kernel after ``rounds`` of alternation from a first one.

    Args:
        y_HW: blurred picture, grey, in [-1, 1].
        kernel_KK: the first kernel.
        price: penalty of an edge, relative to the squared error of a black pixel that should be
            white.
        rounds: times that the picture and the kernel are estimated.
    """
    y_HW = _periodic((y_HW + 1) / 2, kernel_KK.shape[0])
    for _ in range(rounds):
        x_HW = _few_edges(y_HW, kernel_KK, price)
        kernel_KK = _least_squares(y_HW, x_HW, kernel_KK.shape[0])
        price = max(price / WEAKER, LEAST_PRICE)
    return kernel_KK


def _few_edges(y_HW: Tensor, kernel_KK: Tensor, price: float) -> Tensor:
    """argmin |k * x - y|^2 + price |gradient of x|_0, by half-quadratic splitting."""
    size = list(y_HW.shape)
    blur = torch.fft.rfft2(_at_origin(kernel_KK, size))
    down, right = torch.zeros_like(y_HW), torch.zeros_like(y_HW)
    down[0, 0] = right[0, 0] = -1
    down[-1, 0] = right[0, -1] = 1
    slopes = torch.fft.rfft2(torch.stack([down, right]))
    steepness = slopes.abs().square().sum(0)
    explained, share = blur.conj() * torch.fft.rfft2(y_HW), blur.abs().square()
    spectrum, strictness = torch.fft.rfft2(y_HW), 2 * price
    while strictness < STRICTEST:
        edges_GHW = torch.fft.irfft2(slopes * spectrum, size)
        worth = edges_GHW.square().sum(0) > price / strictness
        edges = (slopes.conj() * torch.fft.rfft2(edges_GHW * worth)).sum(0)
        spectrum = (explained + strictness * edges) / (share + strictness * steepness)
        strictness *= 2
    x_HW: Tensor = torch.fft.irfft2(spectrum, size)
    return x_HW


def _least_squares(y_HW: Tensor, x_HW: Tensor, side: int) -> Tensor:
    """Ridge regression of the kernel from gradients of x to those of y; a delta if all weights of
    the solution are <= 0.
    """
    size, half = list(y_HW.shape), side // 2
    y_GHW, x_GHW = (
        torch.stack([each.roll(-1, 0) - each, each.roll(-1, 1) - each]) for each in (y_HW, x_HW)
    )
    spectrum = torch.fft.rfft2(x_GHW)
    power = spectrum.abs().square().sum(0)

    def cut(of: Tensor) -> Tensor:
        picture_HW: Tensor = torch.fft.irfft2(of, size)
        return picture_HW.roll((half, half), (0, 1))[:side, :side]

    def normal(kernel_KK: Tensor) -> Tensor:
        return cut(power * torch.fft.rfft2(_at_origin(kernel_KK, size))) + KERNEL_PRICE * kernel_KK

    goal_KK = cut((spectrum.conj() * torch.fft.rfft2(y_GHW)).sum(0))
    kernel_KK = conjugate_gradients.solve(
        normal, goal_KK, torch.zeros_like(goal_KK), CONJUGATE_STEPS, tolerance=1e-10
    )
    if not float(kernel_KK.max()) > 0:
        kernel_KK[half, half] = 1
    return connected(kernel_KK, WEIGHT.predicted)


def _at_origin(kernel_KK: Tensor, size: list[int]) -> Tensor:
    """Kernel padded to ``size``, with its middle pixel at the origin."""
    side = kernel_KK.shape[0]
    picture_HW = kernel_KK.new_zeros(size)
    picture_HW[:side, :side] = kernel_KK
    return picture_HW.roll((-(side // 2),) * 2, (0, 1))


def _periodic(y_HW: Tensor, margin: int) -> Tensor:
    """Picture padded by mirroring at least ``margin`` pixels, to sides with fast Fourier
    transforms. The padding fades to the mean, so that opposite borders match.
    """
    sides = list(y_HW.shape)
    after = [fast_length(side + 2 * margin) - side - margin for side in sides]
    padded_HW = mirror_pad(y_HW[None, None], (margin, after[0]), (margin, after[1]))[0, 0]
    window_HW = torch.outer(
        *(_window(y_HW, margin, *each) for each in zip(sides, after, strict=True))
    )
    return padded_HW * window_HW + padded_HW.mean() * (1 - window_HW)


def _window(y_HW: Tensor, before: int, side: int, after: int) -> Tensor:
    """Weights that rise from 0, are 1 at ``side`` pixels, and fall."""
    rising, falling = (torch.arange(n, device=y_HW.device) / n for n in (before, after))
    return torch.cat([rising, y_HW.new_ones(side), falling.flip(0)])
