"""The estimate without a prior from which samplers may begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aps_core.types import Likelihood, MeasurementLikelihood

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.sampling.driver import Problem
    from aps_core.sampling.inner_watch import InnerWatch


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
    weight, curvature_weight = WEIGHT, 0.0
    if (
        filling
        and isinstance(problem.objective, MeasurementLikelihood)
        and problem.objective.coverage(nothing_BCHW) == "gaps"
    ):
        weight, curvature_weight = 0.0, filling
    return total_variation_estimate(
        problem.objective,
        nothing_BCHW,
        weight=weight,
        curvature_weight=curvature_weight,
        steps=steps,
        learning_rate=learning_rate,
        watch=watch,
    )
