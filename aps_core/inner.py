"""Runs the inner optimisation: M steps or fewer, eagerly or as a replayed CUDA graph, waiting for the device once at the end.

``adaptive`` reads the loss and the misfit every few steps to decide whether to stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from aps_core.config import APSConfig
from aps_core.cuda_graph import captured
from aps_core.errors import SamplingDiverged

if TYPE_CHECKING:
    from aps_core.aps import InnerStep

WINDOW, MIN_STEPS, PLATEAU = 5, 10, 0.005
"""Adaptive stop: looked at every ``WINDOW`` steps, from ``MIN_STEPS`` on; less improvement than ``PLATEAU`` of the loss ends the optimisation."""


@dataclass(frozen=True)
class Fit:
    """Outcome of one inner optimisation."""

    phi_NK: Tensor
    x_hat_BCHW: Tensor
    loss_curve: list[float]
    misfit: float


class InnerLoop:
    """The inner optimisations of one run. A graph is captured once and serves all reverse steps."""

    def __init__(self, step: InnerStep, config: APSConfig, noise_floor: float) -> None:
        self.step, self.config, self.noise_floor = step, config, noise_floor
        self.replay: Callable[[], None] | None = None

    def run(self, start_NK: Tensor, z_BL: Tensor, keep: float) -> Fit:
        """Optimises the logits of the masked tokens of ``z`` from ``start``.

        Raises:
            SamplingDiverged: the loss is not finite.
        """
        step, limit = self.step, self.config.inner_steps
        step.begin(start_NK, z_BL, keep)
        losses = torch.zeros(max(1, limit), device=start_NK.device)
        used = 0
        if limit == 0:
            with torch.no_grad():
                step.evaluate()
            losses[0], used = step.loss, 1
        elif step.fixed and self.replay is None:
            self.replay = captured(step) if start_NK.is_cuda else step
            step.begin(start_NK, z_BL, keep)  # the warm-up moved the logits
        advance = self.replay or step
        while used < limit and not (used % WINDOW == 0 and self._converged(losses[:used], step.misfit_B if used else None)):
            advance()
            losses[used] = step.loss
            used += 1
        curve = (losses[:used] / len(z_BL)).tolist()
        if not math.isfinite(curve[-1]):
            raise SamplingDiverged(f"The loss became {curve[-1]} after {used} inner steps; lower the learning rate ({self.config.learning_rate}).")
        return Fit(step.phi_NK, step.x_hat_BCHW.clone(), curve, float(step.misfit_B.mean()))

    def _converged(self, losses: Tensor, misfit_B: Tensor | None) -> bool:
        """On a plateau, or at the noise floor: below it only noise is left to fit."""
        if self.config.inner != "adaptive" or len(losses) < MIN_STEPS or misfit_B is None:
            return False
        *earlier, worst = torch.cat([losses[-2 * WINDOW :], misfit_B.max()[None]]).tolist()  # one wait for both
        plateau = min(earlier[WINDOW:]) > (1 - PLATEAU) * min(earlier[:WINDOW])
        return bool(plateau or worst <= self.noise_floor)
