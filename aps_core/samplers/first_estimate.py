"""The estimate without a prior from which samplers may begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aps_core.types import Likelihood, MeasurementLikelihood

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.sampling.driver import Problem
    from aps_core.sampling.inner_watch import InnerWatch

SOFTNESS = 4.0
"""Standard deviation in pixels of the blur of the colours that fill gaps at first."""


def first_estimate(
    problem: Problem,
    samples: int,
    watch: InnerWatch,
    *,
    filling: float = 0.0,
    steps: int = 250,
    learning_rate: float = 0.05,
) -> Tensor | None:
    """The total-variation estimate (B, 3, H, W); None without a likelihood. Where pixels may be
    missing or clipped, a weight of the curvature above 0, ``filling``, replaces that of the total
    variation. ``steps`` and ``learning_rate`` are Adam's.
    """
    from aps_core.imaging.total_variation import WEIGHT, total_variation_estimate

    if not isinstance(problem.objective, Likelihood):
        return None
    (rows, columns), tokenizer = problem.grid, problem.prior.tokenizer
    shape = (samples, 3, rows * tokenizer.stride, columns * tokenizer.stride)
    nothing_BCHW = tokenizer.codebook_KD.new_zeros(shape).float()
    start_BCHW, weight, curvature_weight = nothing_BCHW, WEIGHT, 0.0
    if (
        filling
        and isinstance(problem.objective, MeasurementLikelihood)
        and problem.objective.coverage(nothing_BCHW) == "gaps"
    ):
        weight, curvature_weight = 0.0, filling
        start_BCHW = _surroundings(problem.objective, nothing_BCHW)
    return total_variation_estimate(
        problem.objective,
        start_BCHW,
        weight=weight,
        curvature_weight=curvature_weight,
        steps=steps,
        learning_rate=learning_rate,
        watch=watch,
    )


def _surroundings(likelihood: MeasurementLikelihood, nothing_BCHW: Tensor) -> Tensor:
    """A smooth picture (B, 3, H, W) of the colours near by, if single pixels are missing, else
    ``nothing``. Slopes alone would take too many steps to cross a large hole.
    """
    import torch

    from aps_core.imaging.blending import filled
    from aps_core.imaging.filters import gaussian, separable
    from aps_core.imaging.steepest_descent import steepest_step

    known_B1HW = likelihood.known(nothing_BCHW)
    if known_B1HW is None or not bool(known_B1HW.any()):
        return nothing_BCHW
    known_HW = known_B1HW[0, 0].float()
    seen_CHW = steepest_step(likelihood, nothing_BCHW[:1])[0]  # the measurement, where there is one
    line = gaussian(SOFTNESS, round(2 * SOFTNESS), known_HW.dtype, known_HW.device)
    inside_HW = separable(torch.ones_like(known_HW), line)
    return (separable(filled(seen_CHW, known_HW), line) / inside_HW).expand_as(nothing_BCHW)
