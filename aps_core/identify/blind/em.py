"""Expectation-maximisation over the parameters of a blur.

    E step: pictures x_1 ... x_B ~ p(x | y, theta), posterior samples under the current blur
    M step: theta = argmax sum_b log p(y | x_b, theta)

The algorithm integrates over the pictures and maximises over the blur. Maximising over both favours
no blur at all (Levin et al. 2009, "Understanding and evaluating blind deconvolution
algorithms").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from aps_core.identify.blind.families import Family, Parameters
from aps_core.identify.blind.thresholds import ESTIMATE
from aps_core.operators.base import OperatorSpec

Draw = Callable[[OperatorSpec], Tensor]
"""The E step: pictures (B, C, H, W) from the posterior under a blur."""
Likelihood = Callable[[list[OperatorSpec], Tensor], Tensor]
"""log p(y | x_b, theta) of N blurs and B pictures, (N, B), up to a constant."""

WIDEST, SHARPEST, SHRINKAGE = 0.6, 0.2, 0.6
"""Reach of the first M step, the least reach, and the factor from step to step."""
FINER = 5
"""Factor by which the second grid of an M step, around the best point of the first, is finer."""


@dataclass(frozen=True)
class Estimate:
    """Parameters of a blur."""

    parameters: Parameters
    chains: list[Parameters]
    """Parameters that fit the last picture of each chain best."""
    path: list[Parameters]
    """Parameters of every iteration, from the start to the result."""
    deviation: float
    """Root mean square distance of the chains from the result; see :meth:`Family.distance`."""
    converged: bool
    """Whether the last step was small and the chains agree."""


def expectation_maximisation(
    family: Family,
    start: Parameters,
    draw: Draw,
    likelihood: Likelihood,
    *,
    side: int,
    iterations: int,
    widest: float = WIDEST,
) -> Estimate:
    """Estimates a blur's parameters.

    Args:
        family: the blurs that are compared.
        start: parameters of the first E step.
        draw: the E step; pictures (B, C, H, W) for a blur.
        likelihood: log p(y | x_b, blur), which the M step maximises over the blurs.
        side: shorter side of the picture in pixels; larger blurs do not fit it.
        iterations: E and M steps, >= 1.
        widest: reach of the first M step; see :meth:`Family.around`.

    Returns:
        The parameters after the last M step, and whether they have converged.
    """
    path, reach = [start], widest
    for _ in range(iterations):
        x_BCHW = draw(family.blur(path[-1]))
        best = path[-1]
        for finer in (reach, reach / FINER):
            candidates = family.around(best, finer, side)
            loglik_NB = likelihood([family.blur(each) for each in candidates], x_BCHW)
            best = candidates[int(loglik_NB.sum(1).argmax())]
        path.append(best)
        reach = max(SHARPEST, SHRINKAGE * reach)
    chains = [candidates[int(number)] for number in loglik_NB.argmax(0)]
    squares = [family.distance(chain, best) ** 2 for chain in chains]
    deviation = math.sqrt(sum(squares) / len(squares))
    settled = family.distance(path[-1], path[-2]) <= ESTIMATE.settled
    return Estimate(
        parameters=best,
        chains=chains,
        path=path,
        deviation=deviation,
        converged=settled and deviation <= ESTIMATE.settled,
    )
