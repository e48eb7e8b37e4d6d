"""The blur of a page or screen as a kernel of any shape, with an image prior.

Expectation-maximisation ends at a kernel near its start. It starts wide, at a reduced resolution
where kernels are small, and goes on at finer ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from PIL import Image
from torch import Tensor

from aps_core.blind import free_kernel
from aps_core.blind.effort import MARGIN, SCALES, Effort
from aps_core.blind.families import FAMILIES
from aps_core.blind.free_kernel import centred, difference, maximised
from aps_core.blind.likelihood import UnseenDetail
from aps_core.blind.photograph import PosteriorSamples, examined, reduction
from aps_core.operators.base import KERNEL_SIDE, OperatorSpec
from aps_core.operators.kernel_blur import resampled_kernel
from aps_core.types import InnerHook

if TYPE_CHECKING:
    from aps_core.runtime.engine import ImageEngine

WIDE = 2.5
"""Standard deviation of the first kernel, in pixels of the examined picture."""
REACH = 3.0
"""Half of the kernel's side as a multiple of the standard deviation of the known blur's light."""
LEAST_SIDE = 48
"""Shorter side in pixels below which no reduced picture is examined."""
LEAST_RADIUS, LARGEST_RADIUS = 7, 15
"""Bounds of half of the side, in pixels of the examined picture."""


@dataclass(frozen=True)
class KernelEstimate:
    """A kernel of any shape, in the picture's pixels."""

    kernel_KK: Tensor
    """Picture of a point of light, with sum 1 and an odd side."""
    path: list[Tensor]
    """Kernels from the start to the result, at the resolutions of their estimation."""
    spread: float
    """Mean share of the light that the pictures of one chain alone would send elsewhere."""
    support: float
    """See :func:`aps_core.blind.free_kernel.support`."""


def kernel_of(
    image: Image.Image,
    known: OperatorSpec,
    engine: ImageEngine,
    effort: Effort,
    *,
    sigma: float | None = None,
    rounding: float = 0.0,
    seed: int = 0,
    on_inner: InnerHook | None = None,
) -> KernelEstimate:
    """Estimates the kernel of a picture's blur.

    Args:
        image: RGB.
        known: a parametric blur in the picture's pixels, with which the result is compared.
        engine: image prior of the E step.
        effort: chains, and iterations at the full resolution.
        sigma: standard deviation of the noise on the [-1, 1] scale; None estimates it.
        rounding: standard deviation of an error beside the noise, such as that of JPEG.
        seed: seed of every random draw.
        on_inner: called between inner iterations; returning False cancels.

    Raises:
        SamplingCancelled: ``on_inner`` returned False.
    """
    width = free_kernel.deviation(light_of(known))
    fine = reduction(image, width)
    radius = min(max(math.ceil(REACH * width / fine), LEAST_RADIUS), LARGEST_RADIUS)
    radius = min(radius, KERNEL_SIDE // (2 * fine))
    wide = FAMILIES["gaussian"].blur((WIDE,))
    kernel_KK, before = light_of(wide.scaled(1 / SCALES[0])), SCALES[0]
    path: list[Tensor] = []
    drawn = 0
    for scale in SCALES:
        if scale > 1 and min(image.size) < fine * scale * LEAST_SIDE:
            continue
        y_CHW, deviation = examined(image, fine * scale, sigma, rounding, engine.device)
        samples = PosteriorSamples(
            engine=engine,
            y_CHW=y_CHW,
            sigma=deviation,
            effort=effort,
            seed=seed,
            on_inner=on_inner,
            drawn=drawn,
        )
        draw, likelihood = samples.of_kernel, UnseenDetail(y_CHW, deviation, MARGIN)
        start = centred(
            enlarged(kernel_KK.cpu(), before / scale), 2 * math.ceil(radius / scale) + 1
        )
        steps, x_BCHW = free_kernel.expectation_maximisation(
            start.to(y_CHW), draw, likelihood, effort.at(scale)
        )
        kernel_KK, before, drawn = steps[-1], scale, samples.drawn
        path += [each.cpu() for each in steps]
    chains = [maximised(kernel_KK, x_CHW[None], likelihood) for x_CHW in x_BCHW]
    side = min(KERNEL_SIDE, 2 * min(y_CHW.shape[1:]) - 1)
    simpler_JJ = centred(light_of(known.scaled(1 / fine)), side).to(kernel_KK)
    return KernelEstimate(
        kernel_KK=centred(enlarged(kernel_KK.cpu(), fine), 2 * radius * fine + 1),
        path=path,
        spread=sum(difference(each, kernel_KK) for each in chains) / len(chains),
        support=free_kernel.support(kernel_KK, simpler_JJ, draw, likelihood),
    )


def light_of(blur: OperatorSpec) -> Tensor:
    """What a blur makes of a point of light; ``KERNEL_SIDE`` pixels a side, or what it covers."""
    reach = blur.support.pixels if blur.support else 0
    side = max(KERNEL_SIDE, 2 * reach + 1)
    point_11KK = torch.zeros(1, 1, side, side)
    point_11KK[..., side // 2, side // 2] = 1
    light_KK = blur.bind((1, side, side))(point_11KK)[0, 0].clamp(min=0)
    return light_KK / light_KK.sum()


def enlarged(kernel_KK: Tensor, factor: float) -> Tensor:
    """The kernel with every length multiplied by ``factor``."""
    return torch.from_numpy(resampled_kernel(kernel_KK.double().cpu().numpy(), factor)).float()
