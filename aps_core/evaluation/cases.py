"""Cases of a benchmark: a photograph, an operator, and a simulated measurement.

Protocol ``native`` measures the photograph itself. ``upsampled`` (the paper's APS) and
``upsampled4`` (its APS-L) enlarge the photograph two- or fourfold before measuring it, and reduce
the result before comparing it. The sampler then receives four or sixteen times as many measured
pixels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.errors import InvalidSpec
from aps_core.imaging import noise
from aps_core.losses.measurement import MeasurementLoss
from aps_core.numerics.likelihood import Noise
from aps_core.operators import Bound, OperatorSpec
from aps_core.samplers.aps import APSConfig
from aps_core.types import Objective

PROTOCOLS = {"native": 1, "upsampled": 2, "upsampled4": 4}
"""Enlargement of the photograph before measurement."""

TASKS: dict[str, dict[str, Any]] = {
    "sr4": {"type": "super_resolution", "factor": 4},
    "gaussian_blur": {"type": "gaussian_blur"},
    "inpainting70": {"type": "inpainting", "mask": "random", "fraction": 0.7},
    "hdr": {"type": "hdr"},
    "motion_blur": {"type": "motion_blur"},
    "saturating_blur": {"type": "saturating_blur"},
    "nonlinear_blur": {"type": "nonlinear_blur"},
    "sr2": {"type": "super_resolution", "factor": 2},
    "denoise": {"type": "denoise"},
    "jpeg": {"type": "jpeg"},
    "inpainting50": {"type": "inpainting", "mask": "random", "fraction": 0.5},
}
"""The paper's operators at its strengths, a substitute for the nonlinear blur that needs no
weights, and four that are not in the paper.
"""

SMALL: dict[str, dict[str, Any]] = {
    "gaussian_blur": {"sigma": 1.5},
    "motion_blur": {"kernel_size": 15},
    "saturating_blur": {"sigma": 1.5},
}
"""Strengths for photographs below 256 pixels; the paper's are for 512."""


def strengths(task: str, size: int) -> dict[str, Any]:
    """Fields of an operator for photographs of ``size`` pixels.

    Raises:
        InvalidSpec: no task has that name.
    """
    if task not in TASKS:
        raise InvalidSpec(f"There is no task '{task}'; known: {', '.join(TASKS)}.")
    return {**TASKS[task], **(SMALL.get(task, {}) if size < 256 else {})}


def own_task(fields: Mapping[str, Any]) -> str:
    """Adds a task with a registered operator at exactly the strength given; returns the task's
    name, which lists the fields that differ from the operator's defaults.

    Raises:
        InvalidSpec: there is no such operator.
        pydantic.ValidationError: a field is unknown or out of range.
    """
    spec = OperatorSpec.named(str(fields.get("type"))).model_validate(fields)
    chosen = spec.model_dump(mode="json", exclude_defaults=True, exclude={"type"})
    told = "-".join([str(fields["type"]), *(f"{key}={chosen[key]}" for key in sorted(chosen))])
    name = re.sub(r"[^\w.=-]+", "_", told)[:100]  # becomes part of file names
    TASKS[name] = spec.model_dump(mode="json")
    return name


@dataclass(frozen=True)
class Setup:
    """Settings of a benchmark, from which every sampler's settings are derived."""

    sampler: APSConfig
    loss: MeasurementLoss

    @classmethod
    def recommended(
        cls,
        engine: ImageEngine,
        sampler: Mapping[str, Any] | None = None,
        loss: Mapping[str, Any] | None = None,
    ) -> Setup:
        """The prior's recommendations with changed fields of sampler and loss.

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
    spec: OperatorSpec
    operator: Bound
    sigma: float
    height: int
    """Height of the measured and restored picture in pixels."""
    width: int
    likelihood_noise: Noise
    """As likelihoods take it; ``sigma`` is at least the operator's rounding."""
    objective: Objective

    def at_truth_size(self, x_BCHW: Tensor) -> Tensor:
        """Resizes pictures to the size at which they are compared."""
        size = self.truth_CHW.shape[-2:]
        return (
            x_BCHW
            if x_BCHW.shape[-2:] == size
            else F.interpolate(x_BCHW, size, mode="bicubic", antialias=True)
        )

    def misfit(self, x_BCHW: Tensor) -> float:
        """Mean data misfit in the unit of the noise floor."""
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
    """Simulates the measurement of one photograph. The noise depends on ``seed`` only.

    As in the service, what the operator rounds off counts as noise of the likelihood.
    """
    x = truth_CHW[None].to(engine.device)
    if PROTOCOLS[protocol] > 1:
        x = F.interpolate(
            x, scale_factor=float(PROTOCOLS[protocol]), mode="bicubic", antialias=True
        ).clamp(-1, 1)
    fields = strengths(task, truth_CHW.shape[-1])
    spec = OperatorSpec.named(str(fields["type"])).model_validate(fields)
    _, _, height, width = x.shape
    generator = torch.Generator(engine.device).manual_seed(seed)
    y = noise.add_noise(spec.bind((3, height, width), engine.device)(x)[0], sigma, generator)
    operator = spec.without_rounding().bind((3, height, width), engine.device)
    likelihood_noise = spec.likelihood_noise(sigma)
    return Case(
        protocol=protocol,
        task=task,
        image=name,
        truth_CHW=truth_CHW.to(engine.device),
        y_CHW=y,
        spec=spec,
        operator=operator,
        sigma=max(sigma, spec.rounding),
        height=height,
        width=width,
        likelihood_noise=likelihood_noise,
        objective=engine.measurement_objective(operator, y, likelihood_noise, setup.loss),
    )
