"""The estimate without a prior from which samplers may begin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from aps_core.types import Likelihood, MeasurementLikelihood

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.sampling.driver import Problem

Watch = Callable[[int, int, "Tensor", "Tensor"], None]
"""Called after every step with its number, their number, the loss and the estimate; it may raise to
cancel.
"""
FILLING = 4.0
"""Weight of the curvature of estimates that fill gaps."""
SOFTNESS = 4.0
"""Standard deviation in pixels of the blur of the colours that fill gaps at first."""


def first_estimate(problem: Problem, samples: int, watch: Watch) -> Tensor | None:
    """The total-variation estimate (B, 3, H, W); None without a likelihood."""
    from aps_core.imaging.total_variation import total_variation_estimate

    if not isinstance(problem.objective, Likelihood):
        return None
    return total_variation_estimate(problem.objective, nothing(problem, samples), watch=watch)


def classical_estimate(
    objective: Likelihood,
    start_BCHW: Tensor,
    steps: int,
    clipped_smoothness: float,
    watch: Watch | None = None,
    *,
    filling_steps: int | None = None,
) -> Tensor:
    """The classical estimate (B, 3, H, W) in so many steps, in [-1, 1]. Noisy pixels are shrunk in
    their cosine transform, blurred and reduced pictures in turn with fits to the measurement.
    ``filling_steps``: if single pixels are missing or clipped (default: ``steps``).

    Where single pixels are missing or clipped, slopes continue into the gaps; total variation would
    fill them with steps. That moves clipped values far beyond the limit. With a
    ``clipped_smoothness`` > 0, the weight of the total variation of clipped pictures, they stay
    closer to it. ``start``: grey pictures, for their size. Without a
    :class:`~aps_core.types.MeasurementLikelihood`, it is the estimate of least total variation.
    """
    from aps_core.imaging.dct_shrinkage import shrunk
    from aps_core.imaging.total_variation import WEIGHT
    from aps_core.sampling.shrinkage_estimate import shrinkage_estimate

    if not isinstance(objective, MeasurementLikelihood):
        return _smooth(objective, start_BCHW, steps, watch, weight=WEIGHT)
    varied_BCHW = _varied(start_BCHW)
    seen_BCHW = objective.pixels(varied_BCHW)
    if seen_BCHW is not None:
        return shrunk(seen_BCHW, objective.sigma).clamp(-1, 1)
    if objective.coverage(varied_BCHW) == "mixtures":
        return shrinkage_estimate(objective, start_BCHW, objective.sigma, steps, watch)
    steps = filling_steps or steps
    known_B1HW = objective.known(start_BCHW)
    if known_B1HW is not None:
        start_BCHW = _surroundings(objective, known_B1HW, start_BCHW)
    elif clipped_smoothness:
        return _smooth(objective, start_BCHW, steps, watch, weight=clipped_smoothness)
    return _smooth(objective, start_BCHW, steps, watch, curvature_weight=FILLING)


def _smooth(
    objective: Likelihood,
    start_BCHW: Tensor,
    steps: int,
    watch: Watch | None,
    *,
    weight: float = 0.0,
    curvature_weight: float = 0.0,
) -> Tensor:
    """The estimate of least total variation or curvature."""
    from aps_core.imaging.total_variation import total_variation_estimate

    return total_variation_estimate(
        objective,
        start_BCHW,
        weight=weight,
        curvature_weight=curvature_weight,
        steps=steps,
        learning_rate=0.7 / math.sqrt(steps),
        watch=watch,
    )


def nothing(problem: Problem, samples: int) -> Tensor:
    """Grey pictures (B, 3, H, W)."""
    (rows, columns), tokenizer = problem.grid, problem.prior.tokenizer
    shape = (samples, 3, rows * tokenizer.stride, columns * tokenizer.stride)
    return tokenizer.codebook_KD.new_zeros(shape).float()


def _varied(like_BCHW: Tensor) -> Tensor:
    """Pictures that no operator but the identity returns as they are."""
    import torch

    drawn_BCHW = torch.rand(like_BCHW.shape, generator=torch.Generator().manual_seed(0))
    return drawn_BCHW.to(like_BCHW)


def _surroundings(
    likelihood: MeasurementLikelihood, known_B1HW: Tensor, nothing_BCHW: Tensor
) -> Tensor:
    """Smooth pictures (B, 3, H, W) of the colours of known pixels near by. Slopes alone would take
    too many steps to cross a large hole.
    """
    import torch

    from aps_core.imaging.blending import filled
    from aps_core.imaging.filters import gaussian, separable
    from aps_core.imaging.steepest_descent import steepest_step

    if not bool(known_B1HW.any()):
        return nothing_BCHW
    known_HW = known_B1HW[0, 0].float()
    seen_BCHW = steepest_step(likelihood, nothing_BCHW)  # the measurement, where there is one
    line = gaussian(SOFTNESS, round(2 * SOFTNESS), known_HW.dtype, known_HW.device)
    inside_HW = separable(torch.ones_like(known_HW), line)
    filled_BCHW = torch.stack([filled(seen_CHW, known_HW) for seen_CHW in seen_BCHW])
    return separable(filled_BCHW, line) / inside_HW
