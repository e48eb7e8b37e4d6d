"""The inner optimisation of :mod:`aps_core.samplers.plug_and_play`: pixels' brightness is fitted to
the measurement.

Shapes: Y levels of brightness; see :mod:`aps_core.types` for the others.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from aps_core.errors import SamplingDiverged
from aps_core.sampling.inner_watch import InnerWatch
from aps_core.types import Objective

LEAST_DEVIATION = 0.01
"""Of a pixel's brightness, for the scale of its shift."""


class BrightnessFit:
    """Distributions of brightness ``p_s(y) = p(y) exp(s y) / Z``, with one number s for every
    pixel, such that the expected picture agrees with the measurement:

        min_s  objective(E[y] + colours) / temperature + w KL(p_s || p)

    Of all distributions with given means, these are the closest to the prior's (Csiszar 1975). The
    loss is convex in the means if the objective is. L-BFGS (Nocedal & Wright 2006) minimises it
    over s times the prior's standard deviation, so that sure and unsure pixels move alike.
    """

    x_hat_BCHW: Tensor
    misfit_B: Tensor

    def __init__(
        self,
        objective: Objective,
        log_p_BLY: Tensor,
        levels_Y: Tensor,
        colours_BCHW: Tensor,
        prior_weight: float,
    ) -> None:
        """``prior_weight``: w."""
        self.objective = objective
        self.log_p_BLY = log_p_BLY
        self.levels_Y = levels_Y
        self.colours_BCHW = colours_BCHW
        self.prior_weight = prior_weight
        self.temperature = objective.temperature or 1.0
        p_BLY = log_p_BLY.exp()
        mean_BL, square_BL = p_BLY @ levels_Y, p_BLY @ levels_Y.square()
        deviation_BL = (square_BL - mean_BL.square()).clamp(min=LEAST_DEVIATION**2).sqrt()
        self.scale_BL = 1 / deviation_BL
        self.v_BL = torch.zeros_like(mean_BL)

    def log_p(self, v_BL: Tensor) -> Tensor:
        """Log-probabilities (B, L, Y) after shifts ``v``, not normalised."""
        return self.log_p_BLY + (v_BL * self.scale_BL)[..., None] * self.levels_Y

    def run(self, steps: int, watch: InnerWatch) -> list[float]:
        """Takes about ``steps`` steps, fewer if the loss stops falling; returns the loss at every
        evaluation in the objective's units, mean over the pictures.

        Raises:
            SamplingDiverged: the loss is not finite.
        """
        v_BL = self.v_BL.requires_grad_()
        optimizer = torch.optim.LBFGS(
            [v_BL],
            max_iter=steps,
            max_eval=steps,
            tolerance_grad=1e-3,
            tolerance_change=1e-6,
            history_size=10,
            line_search_fn="strong_wolfe",
        )
        curve: list[float] = []

        def evaluated() -> Tensor:
            with torch.enable_grad():
                loss = self._loss(v_BL)
                (v_BL.grad,) = torch.autograd.grad(loss, v_BL)
            loss = loss.detach()
            reported = self.temperature / len(v_BL) * loss
            curve.append(float(reported))
            if not math.isfinite(curve[-1]):
                raise SamplingDiverged(f"The loss became {curve[-1]}.")
            watch(min(len(curve), steps), steps, reported, self.x_hat_BCHW)
            return loss

        optimizer.step(evaluated)
        self.v_BL = v_BL.detach()
        self._loss(self.v_BL)  # the last evaluation may not be of the point that was chosen
        return curve

    def p(self) -> Tensor:
        """Probabilities (B, L, Y) of the fitted brightness."""
        return self.log_p(self.v_BL).softmax(-1)

    def picture(self, y_BL: Tensor) -> Tensor:
        """Pictures (B, C, H, W) with a brightness, in the colours of the prior's answer."""
        x_BCHW: Tensor = self.colours_BCHW + y_BL.unflatten(1, self.colours_BCHW.shape[2:])[:, None]
        return x_BCHW

    def _loss(self, v_BL: Tensor) -> Tensor:
        log_p_BLY = self.log_p(v_BL)
        total_BL1 = log_p_BLY.logsumexp(-1, keepdim=True)
        mean_BL = (log_p_BLY - total_BL1).exp() @ self.levels_Y
        x_hat_BCHW = self.picture(mean_BL)
        loss_B, self.misfit_B = self.objective(x_hat_BCHW)
        self.x_hat_BCHW = x_hat_BCHW.detach()
        kl_B = (v_BL * self.scale_BL * mean_BL - total_BL1[..., 0]).sum(1)
        total: Tensor = (loss_B / self.temperature + self.prior_weight * kl_B).sum()
        return total
