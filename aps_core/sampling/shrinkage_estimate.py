"""Classical estimate of blurred and reduced pictures: shrinkage in the cosine transform alternates
with fits to the measurement.

Half-quadratic splitting. The noise level that :func:`aps_core.imaging.dct_shrinkage.shrunk` removes
falls from round to round, as in BM3D-based deblurring (Danielyan, Katkovnik & Egiazarian 2012).
Results are sharper than with total variation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from aps_core.imaging.dct_shrinkage import shrunk, some_places
from aps_core.numerics.lbfgs import minimum
from aps_core.numerics.likelihood import Likelihood
from aps_core.numerics.steepest_descent import steepest_step

ROUNDS = 12
THRESHOLD = 3.0
"""Threshold of :func:`~aps_core.imaging.dct_shrinkage.shrunk`, raised because errors of a fit are
not white.
"""
FIRST_ERROR = 0.4
"""Assumed error of the picture in the first round (standard deviation, pictures in [-1, 1])."""
LAST_ERROR = 0.45
"""Assumed error in the last round, divided by the square root of the noise's standard deviation."""
TRUST = 0.25
"""Weight of the shrunk picture in the next fit, relative to independent pixels with that error."""


def shrinkage_estimate(
    likelihood: Likelihood,
    start_BCHW: Tensor,
    sigma: float,
    steps: int,
    watch: Callable[[int, int, Tensor, Tensor], None] | None = None,
) -> Tensor:
    """Estimates pictures that were blurred or reduced.

    Args:
        likelihood: likelihood of the measurement.
        start_BCHW: initial pictures in [-1, 1].
        sigma: standard deviation of the measurement's noise, > 0.
        steps: maximum number of evaluations of the likelihood in total, but at least one per round.
        watch: called after every evaluation with its number, ``steps``, the loss and the estimate;
            it may raise to cancel.

    Returns:
        Pictures (B, 3, H, W) in [-1, 1].

    Raises:
        SamplingDiverged: the likelihood is not finite.
    """
    fits = max(1, steps // ROUNDS)

    def fitted(number: int, expected_BCHW: Tensor, weight: float | Tensor) -> Tensor:
        done = number * fits

        def evaluated(at_BCHW: Tensor) -> Tensor:
            nonlocal done
            square = (at_BCHW - expected_BCHW).square().sum()
            loss = likelihood.negative_log_likelihood(at_BCHW).sum() + weight / 2 * square
            done = min(done + 1, steps)
            if watch is not None:
                watch(done, steps, loss.detach() / len(at_BCHW), at_BCHW.detach())
            return loss

        return minimum(evaluated, expected_BCHW, fits)

    return shrunk_in_rounds(steepest_step(likelihood, start_BCHW), math.sqrt(sigma), fitted)


def shrunk_in_rounds(
    x_BCHW: Tensor,
    root_sigma: float | Tensor,
    fitted: Callable[[int, Tensor, float | Tensor], Tensor],
) -> Tensor:
    """Runs all rounds and returns pictures (B, 3, H, W) in [-1, 1].

    Args:
        x_BCHW: initial pictures.
        root_sigma: square root of the noise's standard deviation, one for all or one per picture
            (B,).
        fitted: maps the number of the round, shrunk pictures and a weight w to the pictures that
            minimise the negative log-likelihood plus w/2 times the squared distance from them.
    """
    last = LAST_ERROR * root_sigma
    for number in range(ROUNDS):
        error = FIRST_ERROR * (last / FIRST_ERROR) ** (number / (ROUNDS - 1))
        expected_BCHW = shrunk(x_BCHW, error, some_places(number), THRESHOLD)
        x_BCHW = fitted(number, expected_BCHW, TRUST / error**2)
    return shrunk(x_BCHW, last, threshold=THRESHOLD).clamp(-1, 1)
