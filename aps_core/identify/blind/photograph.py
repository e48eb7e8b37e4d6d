"""Blur of a photograph or page: EM on its most detailed part, with an image prior.

The E step draws several samples with a short run of the prior's own sampler or, for priors that do
not denoise estimates, of ``carried_evidence``. The final correction is omitted: it would copy
frequencies of the measurement into the samples, which would then agree with any blur.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from aps_core.identify.blind.effort import INNER_STEPS, MARGIN, SIDE, STEPS, Effort
from aps_core.identify.blind.em import WIDEST, Estimate, expectation_maximisation
from aps_core.identify.blind.families import Family, Parameters
from aps_core.identify.blind.likelihood import PowerLaw, UnseenDetail
from aps_core.identify.blind.thresholds import ESTIMATE
from aps_core.imaging import images, noise
from aps_core.imaging.noise_level import QUANTISATION
from aps_core.losses.measurement import MeasurementLoss
from aps_core.operators.base import OperatorSpec
from aps_core.samplers.base import SamplerSpec
from aps_core.samplers.carried_evidence import CarriedEvidence
from aps_core.sampling import driver
from aps_core.types import InnerHook, InnerInfo

if TYPE_CHECKING:
    from aps_core.engines.engine import ImageEngine


def blur_of(
    image: Image.Image,
    family: Family,
    guess: Parameters,
    engine: ImageEngine | None,
    effort: Effort,
    *,
    widest: float = WIDEST,
    sigma: float | None = None,
    rounding: float = 0.0,
    seed: int = 0,
    on_inner: InnerHook | None = None,
) -> Estimate:
    """Estimates a parametric blur, in pixels of the picture.

    Args:
        image: RGB.
        family: the blurs that are compared.
        guess: parameters from which the search starts.
        engine: image prior of the E step; None integrates over pictures with a power-law spectrum.
        effort: chains and iterations.
        widest: reach of the first M step.
        sigma: standard deviation of the noise on the [-1, 1] scale; None estimates it.
        rounding: standard deviation of an additional error, such as that of JPEG.
        seed: seed of every random draw.
        on_inner: called between inner iterations; returning False cancels.

    Raises:
        SamplingCancelled: ``on_inner`` returned False.
    """
    zoom = reduction(image, guess[0] * family.deviation)
    device = engine.device if engine else "cpu"
    y_CHW, deviation = examined(image, zoom, sigma, rounding, device)
    found = expectation_maximisation(
        family,
        family.scaled(guess, 1 / zoom),
        (
            PosteriorSamples(
                engine=engine,
                y_CHW=y_CHW,
                sigma=deviation,
                effort=effort,
                seed=seed,
                on_inner=on_inner,
            )
            if engine
            else lambda _: y_CHW[None]  # not used
        ),
        (UnseenDetail if engine else PowerLaw)(y_CHW, deviation, MARGIN),
        side=min(y_CHW.shape[1:]) - 2 * MARGIN,
        iterations=effort.iterations,
        widest=widest,
    )
    return replace(
        found,
        parameters=family.scaled(found.parameters, zoom),
        chains=[family.scaled(each, zoom) for each in found.chains],
        path=[family.scaled(each, zoom) for each in found.path],
    )


def reduction(image: Image.Image, deviation: float) -> int:
    """Factor by which a picture is reduced for the search.

    Args:
        image: the whole picture.
        deviation: approximate standard deviation of the blur in pixels of the picture.
    """
    zoom = 1
    while deviation > ESTIMATE.largest * zoom and min(image.size) >= 4 * zoom * SIDE // 3:
        zoom *= 2
    return zoom


def examined(
    image: Image.Image,
    zoom: float,
    sigma: float | None,
    rounding: float,
    device: torch.device | str,
) -> tuple[Tensor, float]:
    """The most detailed part (3, H, W) of a picture reduced by ``zoom``, and the standard deviation
    of its errors. ``sigma`` is the noise of the whole picture, None estimates it; ``rounding`` is
    that of another error.
    """
    part = image
    if zoom > 1:
        width, height = (round(side / zoom) for side in image.size)
        part = image.resize((width, height), Image.Resampling.LANCZOS)
    y_CHW = images.to_tensor(images.Picture(part.crop(most_detailed(part)))).to(device)
    estimated = noise.estimate_sigma(y_CHW)
    noisy = max(estimated if sigma is None else sigma / zoom, QUANTISATION)
    return y_CHW, math.hypot(noisy, rounding / zoom)


@dataclass
class PosteriorSamples:
    """E step: short runs of a sampler on a measurement (3, H, W)."""

    engine: ImageEngine
    y_CHW: Tensor
    sigma: float
    effort: Effort
    seed: int
    on_inner: InnerHook | None = None
    drawn: int = 0

    def __call__(self, blur: OperatorSpec) -> Tensor:
        """Pictures (B, 3, H, W) from the posterior under a blur."""
        engine, (_, height, width) = self.engine, self.y_CHW.shape
        bound = blur.bind((3, height, width), engine.device).cropped(height, width)
        loss = MeasurementLoss(perceptual_weight=0.0)
        number, self.drawn = self.drawn, self.drawn + 1
        sample = driver.sample(
            engine.prior,
            engine.measurement_objective(bound, self.y_CHW, self.sigma, loss),
            self._sampler(),
            grid=engine.grid(height, width),
            generator=torch.Generator(engine.device).manual_seed(self.seed + number),
            batch=self.effort.chains,
            on_inner=self._hook(number),
        )
        return sample.x_BCHW[..., :height, :width].float()

    def _sampler(self) -> SamplerSpec:
        spec = self.engine.spec
        short = {"steps": STEPS, "inner_steps": INNER_STEPS}
        if spec.denoises:
            sampler = SamplerSpec.named(spec.restoring_sampler)
            return sampler.model_validate({**spec.recommended_for(sampler), **short})
        usual = spec.recommended_for(CarriedEvidence)
        return CarriedEvidence.model_validate({**usual, **short, "correction": 0.0})

    def _hook(self, number: int) -> Callable[[InnerInfo], bool | None] | None:
        """Hook that reports the search as inner iterations of the first reverse step."""
        hook, total = self.on_inner, self.effort.iterations * STEPS * INNER_STEPS
        if hook is None:
            return None

        def report(info: InnerInfo) -> bool | None:
            done = (number * STEPS + info.step - 1) * INNER_STEPS + info.iteration
            # no preview: the picture is only the examined part of the upload
            return hook(replace(info, step=1, iteration=done, inner_steps=total, picture=None))

        return report


def most_detailed(image: Image.Image, side: int = SIDE) -> tuple[int, int, int, int]:
    """Box (left, top, right, bottom) of at most ``side`` pixels a side with the most detail."""
    width, height = (min(side, each) for each in image.size)
    grey = np.asarray(image.convert("L"), dtype=np.float64)
    down, right = np.gradient(grey)
    # clipped pixels carry no information about the blur
    energy = np.where((grey > 2) & (grey < 253), down**2 + right**2, 0.0)
    total = np.pad(energy.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    inside = total[height:, width:] - total[:-height, width:] - total[height:, :-width]
    inside = inside + total[:-height, :-width]
    top, left = np.unravel_index(inside.argmax(), inside.shape)
    return int(left), int(top), int(left) + width, int(top) + height
