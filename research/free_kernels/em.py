"""Kernels of any shape by EM over restorations, for comparison with ``aps_core.identify.blind``.

    E step: pictures x_1 ... x_B ~ p(x | y, k), drawn by the sampler with an image prior
    M step: k = argmax sum_b log p(y | x_b, k) over all k >= 0 with sum k = 1

From a wide kernel at a reduced resolution to a sharp one at the full resolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.identify.blind.effort import MARGIN, Effort
from aps_core.identify.blind.families import FAMILIES
from aps_core.identify.blind.kernel import centred, enlarged, light_of
from aps_core.identify.blind.likelihood import UnseenDetail
from aps_core.identify.blind.photograph import PosteriorSamples, examined
from aps_core.operators.blur import reflecting_filter
from aps_core.operators.kernel_blur import KernelBlur

SCALES = (2 * 2**0.5, 2.0, 2**0.5, 1.0)
"""Factors by which the picture is reduced."""
RADIUS, WIDE = 10, 2.5
"""Half of the kernel's side, and the standard deviation of the first one, in pixels."""
DESCENT, RATE = 50, 0.1
"""Steps of Adam in an M step, and their size in the logarithms of the weights. The first pictures
are wrong, and the exact solution for them is noise.
"""
LEAST = 1e-5
"""Smaller weights are raised to this before an M step: from 0, none would ever grow."""

Draw = Callable[[Tensor], Tensor]
"""The E step: pictures (B, C, H, W) under a kernel."""


def samples(engine: ImageEngine) -> Callable[[Tensor, float], Draw]:
    """The E step by posterior samples, for a measurement (3, H, W) and its noise."""

    def of_measurement(y_CHW: Tensor, sigma: float) -> Draw:
        drawn = PosteriorSamples(
            engine=engine, y_CHW=y_CHW, sigma=sigma, effort=Effort(3, 3), seed=0
        )
        return lambda kernel_KK: drawn(KernelBlur.of(kernel_KK))

    return of_measurement


def estimated(
    image: Image.Image, pictures: Callable[[Tensor, float], Draw], iterations: int
) -> Tensor:
    """The kernel (K, K) of a picture.

    Args:
        image: RGB.
        pictures: the E step for a measurement and its noise.
        iterations: E and M steps at the full resolution, one less at the others.
    """
    kernel_KK, before = light_of(FAMILIES["gaussian"].blur((WIDE,))), SCALES[0]
    for scale in SCALES:
        y_CHW, sigma = examined(image, scale, None, 0.0, "cpu")
        draw, likelihood = pictures(y_CHW, sigma), _KernelLikelihood(y_CHW, sigma, MARGIN)
        side = 2 * math.ceil(RADIUS / scale) + 1
        kernel_KK, before = centred(enlarged(kernel_KK, before / scale), side), scale
        for _ in range(iterations - (scale > 1)):
            kernel_KK = _maximised(kernel_KK, draw(kernel_KK), likelihood)
    return kernel_KK


@dataclass(frozen=True)
class _KernelLikelihood(UnseenDetail):
    """The likelihood of a kernel, differentiable in it."""

    def of_kernel(self, kernel_KK: Tensor, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """log p(y | x_b, kernel), (B,), and the variance (H, W // 2 + 1) of what is left of y."""
        inside = [side - 2 * self.margin for side in self.y_CHW.shape[1:]]
        passed_HF = torch.fft.rfft2(kernel_KK, inside).abs().square()
        return self.best(self.power(self._seen(kernel_KK, x_BCHW)), passed_HF)

    def squares(self, kernel_KK: Tensor, x_BCHW: Tensor, variance_HF: Tensor) -> Tensor:
        """Weighted sum of the squares of what the pictures under a kernel leave of y."""
        return (self.power(self._seen(kernel_KK, x_BCHW)) / variance_HF).sum()

    def _seen(self, kernel_KK: Tensor, x_BCHW: Tensor) -> Tensor:
        return reflecting_filter(kernel_KK.flip(0, 1), *self.y_CHW.shape[1:])(x_BCHW)


def _maximised(kernel_KK: Tensor, x_BCHW: Tensor, likelihood: _KernelLikelihood) -> Tensor:
    """The M step. With the variance fixed to that under the present kernel, the likeliest one
    solves a weighted least-squares problem, which is convex; it is not solved exactly.
    """
    before, variance_HF = likelihood.of_kernel(kernel_KK, x_BCHW)
    logits_KK = kernel_KK.clamp(min=LEAST).log().requires_grad_()
    adam = torch.optim.Adam([logits_KK], lr=RATE)
    for _ in range(DESCENT):
        adam.zero_grad()
        likelihood.squares(_normalised(logits_KK), x_BCHW, variance_HF).backward()
        adam.step()
    found_KK = _normalised(logits_KK.detach())
    after, _ = likelihood.of_kernel(found_KK, x_BCHW)
    return found_KK if float(after.sum()) > float(before.sum()) else kernel_KK


def _normalised(logits_KK: Tensor) -> Tensor:
    """Weights >= 0 with sum 1."""
    return logits_KK.flatten().softmax(0).view_as(logits_KK)
