"""A benchmark's cases: a photograph, an operator, a simulated measurement of it.

Protocol ``native``: the measurement is taken of the photograph itself. ``upsampled`` (the paper's
APS) and ``upsampled4`` (its APS-L): the photograph is enlarged two- or fourfold before the
measurement is taken, and the result reduced again before it is compared, so the sampler sees four
or sixteen times as many measured pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.errors import InvalidSpec
from aps_core.imaging import noise
from aps_core.losses.measurement import MeasurementLoss
from aps_core.operators import Bound, OperatorSpec
from aps_core.runtime.engine import ImageEngine
from aps_core.samplers.aps import APSConfig
from aps_core.types import Objective

PROTOCOLS = {"native": 1, "upsampled": 2, "upsampled4": 4}
"""How much the photograph is enlarged before it is measured."""

TASKS: dict[str, dict[str, Any]] = {
    "sr4": {"type": "super_resolution", "factor": 4},
    "gaussian_blur": {"type": "gaussian_blur"},
    "inpainting70": {"type": "inpainting", "mask": "random", "fraction": 0.7},
    "hdr": {"type": "hdr"},
    "motion_blur": {"type": "motion_blur"},
    "saturating_blur": {"type": "saturating_blur"},
    "nonlinear_blur": {"type": "nonlinear_blur"},
}
"""The paper's operators at its strengths, and a blur that stands beside the nonlinear one, which
needs weights.
"""

SMALL: dict[str, dict[str, Any]] = {
    "gaussian_blur": {"sigma": 1.5},
    "motion_blur": {"kernel_size": 15},
    "saturating_blur": {"sigma": 1.5},
}
"""Strengths for photographs below 256 pixels: the paper's hold at 512."""


def strengths(task: str, size: int) -> dict[str, Any]:
    """An operator's fields for photographs of ``size`` pixels.

    Raises:
        InvalidSpec: there is no such task.
    """
    if task not in TASKS:
        raise InvalidSpec(f"There is no task '{task}'; known: {', '.join(TASKS)}.")
    return {**TASKS[task], **(SMALL.get(task, {}) if size < 256 else {})}


@dataclass(frozen=True)
class Setup:
    """A benchmark's settings, from which those of every sampler follow."""

    sampler: APSConfig
    loss: MeasurementLoss

    @classmethod
    def recommended(
        cls,
        engine: ImageEngine,
        sampler: Mapping[str, Any] | None = None,
        loss: Mapping[str, Any] | None = None,
    ) -> Setup:
        """The prior's recommendations with changes of fields of the sampler and of the loss.

        Raises:
            pydantic.ValidationError: a field is unknown or out of range.
        """
        spec = engine.spec
        return cls(
            APSConfig(**{**spec.recommended, **(sampler or {})}),
            MeasurementLoss(**{**spec.recommended_loss.get("measurement", {}), **(loss or {})}),
        )


@dataclass(frozen=True)
class Case:
    """One photograph under one operator, protocol and noise."""

    protocol: str
    task: str
    image: str
    truth_CHW: Tensor
    y_CHW: Tensor
    operator: Bound
    sigma: float
    height: int
    """Of the picture that was measured and is restored."""
    width: int
    objective: Objective

    def at_truth_size(self, x_BCHW: Tensor) -> Tensor:
        """Pictures at the size they are compared at."""
        size = self.truth_CHW.shape[-2:]
        return (
            x_BCHW
            if x_BCHW.shape[-2:] == size
            else F.interpolate(x_BCHW, size, mode="bicubic", antialias=True)
        )

    def misfit(self, x_BCHW: Tensor) -> float:
        """Mean data misfit, of the noise floor's own unit."""
        if x_BCHW.shape[-2:] != (self.height, self.width):
            x_BCHW = F.interpolate(x_BCHW, (self.height, self.width), mode="bicubic")
        return float(self.objective(x_BCHW)[1].mean())


def make_case(
    engine: ImageEngine,
    setup: Setup,
    protocol: str,
    task: str,
    name: str,
    truth_CHW: Tensor,
    sigma: float,
    seed: int,
) -> Case:
    """Simulates the measurement of one photograph; the noise depends on ``seed`` alone."""
    x = truth_CHW[None].to(engine.device)
    if PROTOCOLS[protocol] > 1:
        x = F.interpolate(
            x, scale_factor=float(PROTOCOLS[protocol]), mode="bicubic", antialias=True
        ).clamp(-1, 1)
    fields = strengths(task, truth_CHW.shape[-1])
    spec = OperatorSpec.named(str(fields["type"])).model_validate(fields)
    _, _, height, width = x.shape
    operator = spec.bind((3, height, width), engine.device)
    y = noise.add_noise(operator(x)[0], sigma, torch.Generator(engine.device).manual_seed(seed))
    objective = engine.measurement_objective(operator, y, sigma, setup.loss)
    return Case(
        protocol,
        task,
        name,
        truth_CHW.to(engine.device),
        y,
        operator,
        sigma,
        height,
        width,
        objective,
    )


def input_baseline(case: Case) -> Tensor:
    """What a user has without us: bicubic enlargement, normalised Gaussian filling, or the input
    itself.
    """
    y = case.y_CHW[None]
    if y.shape[-2:] != (case.height, case.width):
        return F.interpolate(y, (case.height, case.width), mode="bicubic").clamp(-1, 1)
    weight = case.operator.weight
    if weight is None:
        return y.clamp(-1, 1)
    offsets = torch.arange(-4, 5, device=y.device, dtype=y.dtype)
    kernel = torch.exp(-offsets.square()[:, None] / 2 - offsets.square()[None] / 2).expand(
        3, 1, 9, 9
    )
    mask = weight.expand_as(y)
    filled = F.conv2d(y * mask, kernel, padding=4, groups=3) / F.conv2d(
        mask, kernel, padding=4, groups=3
    ).clamp(min=1e-6)
    return torch.where(mask > 0, y, filled).clamp(-1, 1)


def round_trip(engine: ImageEngine, truth_CHW: Tensor) -> Tensor:
    """The tokenizer's encode-decode of the truth (1, 3, H, W): a reference for what its codes can
    show.
    """
    tokenizer = engine.prior.tokenizer
    _, height, width = truth_CHW.shape
    with torch.no_grad():
        codes = tokenizer.encode(truth_CHW[None].to(engine.device))
        return tokenizer.decode(tokenizer.codebook_KD[codes], engine.grid(height, width)).clamp(
            -1, 1
        )
