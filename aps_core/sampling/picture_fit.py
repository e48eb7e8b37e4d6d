"""The inner optimisation of :mod:`aps_core.samplers.half_quadratic`: whole pictures are fitted to a
measurement, near those that are expected.

Shapes: see :mod:`aps_core.types`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aps_core.errors import SamplingDiverged
from aps_core.numerics.conjugate_gradients import solve
from aps_core.numerics.lbfgs import minimum
from aps_core.numerics.likelihood import Likelihood
from aps_core.sampling.inner_watch import InnerWatch

TOLERANCE = 1e-7
"""Squared residual of a linear fit, relative to its start's."""


class PictureFit:
    """The pictures x of least ``-log q(y | x) + weight / 2 |x - expected|^2``.

    With a linear operator this is a linear system, solved by conjugate gradients: the product with
    its matrix is a difference of two gradients. Otherwise L-BFGS searches.
    """

    def __init__(self, likelihood: Likelihood, like_BCHW: Tensor) -> None:
        """``like``: pictures of the size and number to be fitted."""
        self.likelihood = likelihood
        one_BCHW, other_BCHW, step_BCHW = (
            torch.rand(like_BCHW.shape, generator=torch.Generator().manual_seed(n)).to(like_BCHW)
            for n in range(3)
        )
        curved = [
            self._slope(start_BCHW + step_BCHW)[0] - self._slope(start_BCHW)[0]
            for start_BCHW in (one_BCHW, other_BCHW - 1)
        ]
        apart = (curved[0] - curved[1]).norm() / curved[0].norm().clamp(min=1e-12)
        self.linear = bool(apart < 1e-3)

    def run(
        self, expected_BCHW: Tensor, weight: float, steps: int, watch: InnerWatch
    ) -> tuple[Tensor, list[float]]:
        """Takes at most about ``steps`` steps; returns x, and the loss of every evaluation, mean
        over the pictures (of linear systems, at the start and the end).

        Raises:
            SamplingDiverged: the loss is not finite.
        """
        curve: list[float] = []

        def total(x_BCHW: Tensor) -> Tensor:
            square = (x_BCHW - expected_BCHW).square().sum()
            loss = self.likelihood.negative_log_likelihood(x_BCHW).sum() + weight / 2 * square
            curve.append(float(loss.detach()) / len(x_BCHW))
            return loss

        if not self.linear:

            def watched(x_BCHW: Tensor) -> Tensor:
                loss = total(x_BCHW)
                mean = loss.detach() / len(x_BCHW)
                watch(min(len(curve), steps), steps, mean, x_BCHW.detach())
                return loss

            return minimum(watched, expected_BCHW, steps), curve
        slope_BCHW, before = self._slope(expected_BCHW)
        done = 0

        def product(change_BCHW: Tensor) -> Tensor:
            nonlocal done
            done = min(done + 1, steps)
            at_BCHW = expected_BCHW + change_BCHW
            watch(done, steps, before / len(at_BCHW), at_BCHW)
            return self._slope(at_BCHW)[0] - slope_BCHW + weight * change_BCHW

        nothing_BCHW = torch.zeros_like(expected_BCHW)
        total(expected_BCHW)
        change_BCHW = solve(product, -slope_BCHW, nothing_BCHW, steps, tolerance=TOLERANCE)
        x_BCHW = expected_BCHW + change_BCHW
        total(x_BCHW)
        if not x_BCHW.isfinite().all():
            raise SamplingDiverged(f"The loss became {curve[-1]}.")
        return x_BCHW, curve

    def _slope(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient of the negative log-likelihood, and its sum."""
        x_BCHW = x_BCHW.detach().requires_grad_()
        with torch.enable_grad():
            loss = self.likelihood.negative_log_likelihood(x_BCHW).sum()
            (slope_BCHW,) = torch.autograd.grad(loss, x_BCHW)
        return slope_BCHW, loss.detach()
