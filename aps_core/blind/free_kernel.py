"""A blur of any shape: its kernel by expectation-maximisation over posterior samples.

    E step: pictures x_1 ... x_B ~ p(x | y, k), posterior samples under the current kernel
    M step: k = argmax sum_b log p(y | x_b, k) over all k >= 0 with sum k = 1

Kernels are pictures (K, K) of a point of light, with sum 1 and an odd side.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from aps_core.blind.likelihood import UnseenDetail

Draw = Callable[[Tensor], Tensor]
"""The E step: pictures (B, C, H, W) from the posterior under a kernel."""

DESCENT, RATE = 50, 0.1
"""Steps of Adam in an M step, and their size in the logarithms of the weights."""
LEAST = 1e-5
"""Smaller weights are raised to this before an M step: from 0, none would ever grow."""
COUNTED = 1e-3
"""Share of the light from which on a weight counts as a parameter; smaller ones are as good as 0.
"""


def expectation_maximisation(
    start_KK: Tensor, draw: Draw, likelihood: UnseenDetail, iterations: int
) -> tuple[list[Tensor], Tensor]:
    """Estimates a kernel.

    Args:
        start_KK: kernel of the first E step.
        draw: the E step.
        likelihood: that of the measurement.
        iterations: E and M steps, >= 1.

    Returns:
        The kernels from the start to the result, and the last pictures (B, C, H, W).
    """
    path = [start_KK]
    for _ in range(iterations):
        x_BCHW = draw(path[-1])
        path.append(maximised(path[-1], x_BCHW, likelihood))
    return path, x_BCHW


def maximised(kernel_KK: Tensor, x_BCHW: Tensor, likelihood: UnseenDetail) -> Tensor:
    """The M step: a kernel under which the measurement is at least as likely, given pictures.

    The likelihood itself is no good guide: from a wrong kernel, it explains y by more unseen
    detail. With the variance of the deviations fixed to that under the present kernel, the
    likeliest one solves a weighted least-squares problem, which is convex. It is not solved
    exactly, because the first pictures are wrong, and their exact solution is noise.

    Args:
        kernel_KK: the present kernel.
        x_BCHW: pictures from the posterior.
        likelihood: that of the measurement.
    """
    variance_HF = likelihood.variance(kernel_KK, x_BCHW)
    logits_KK = kernel_KK.clamp(min=LEAST).log().requires_grad_()
    adam = torch.optim.Adam([logits_KK], lr=RATE)
    for _ in range(DESCENT):
        adam.zero_grad()
        likelihood.squares(_normalised(logits_KK), x_BCHW, variance_HF).backward()
        adam.step()
    found_KK = _normalised(logits_KK.detach())
    with torch.no_grad():
        before, after = (
            float(likelihood.of_kernel(each_KK, x_BCHW).sum()) for each_KK in (kernel_KK, found_KK)
        )
    return found_KK if after > before else kernel_KK


def support(kernel_KK: Tensor, simpler_JJ: Tensor, draw: Draw, likelihood: UnseenDetail) -> float:
    """How much better than a simpler kernel a free one explains the measurement: the logarithm of
    the ratio of their likelihoods on pictures drawn under both, less the price of a parameter by
    the Bayesian information criterion (Schwarz 1978) for every weight above :data:`COUNTED`. Above
    0, the free one is supported.
    """
    x_BCHW = torch.cat([draw(kernel_KK), draw(simpler_JJ)])
    with torch.no_grad():
        free, simpler = (
            float(likelihood.of_kernel(each, x_BCHW).mean()) for each in (kernel_KK, simpler_JJ)
        )
    weights = int((kernel_KK > COUNTED).sum())
    return free - simpler - weights * math.log(likelihood.frequencies) / 2


def difference(one_KK: Tensor, other_KK: Tensor) -> float:
    """Share of the light that two kernels send to different places."""
    return float((one_KK - other_KK).abs().sum() / 2)


def deviation(kernel_KK: Tensor) -> float:
    """Standard deviation of the light around its centre along an axis, in pixels."""
    down_K, right_K = _positions(kernel_KK)
    down, right = _centre(kernel_KK)
    squares_KK = (down_K[:, None] - down) ** 2 + (right_K[None] - right) ** 2
    return math.sqrt(float((kernel_KK * squares_KK).sum()) / 2)


def centred(kernel_KK: Tensor, side: int) -> Tensor:
    """The kernel with its centre of light in the middle pixel, cut or continued to ``side``."""
    down, right = (round(each) for each in _centre(kernel_KK))
    padded = torch.nn.functional.pad(kernel_KK, (side,) * 4)
    top = side + kernel_KK.shape[0] // 2 + down - side // 2
    left = side + kernel_KK.shape[1] // 2 + right - side // 2
    cut: Tensor = padded[top : top + side, left : left + side]
    return cut / cut.sum()


def _centre(kernel_KK: Tensor) -> tuple[float, float]:
    """Mean place of the light, in pixels below and to the right of the middle pixel."""
    down_K, right_K = _positions(kernel_KK)
    return float((kernel_KK.sum(1) * down_K).sum()), float((kernel_KK.sum(0) * right_K).sum())


def _positions(kernel_KK: Tensor) -> tuple[Tensor, Tensor]:
    """Distances of rows and of columns from the middle pixel."""
    down_K, right_K = (torch.arange(n, device=kernel_KK.device) - n // 2 for n in kernel_KK.shape)
    return down_K, right_K


def _normalised(logits_KK: Tensor) -> Tensor:
    """Weights >= 0 with sum 1."""
    return logits_KK.flatten().softmax(0).view_as(logits_KK)
