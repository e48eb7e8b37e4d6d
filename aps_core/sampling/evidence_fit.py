"""The inner optimisation of :mod:`aps_core.samplers.carried_evidence`: Adam on the evidence u."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from aps_core.aps import quantized_loss
from aps_core.errors import SamplingDiverged
from aps_core.sampling.expectation import Tilt
from aps_core.types import MASK

if TYPE_CHECKING:
    from aps_core.samplers.carried_evidence import CarriedEvidence
    from aps_core.sampling.driver import Problem
    from aps_core.sampling.inner_watch import InnerWatch


class EvidenceFit:
    """The evidence u (B, L, D) of one reverse step and its optimisation."""

    x_hat_BCHW: Tensor
    misfit_B: Tensor

    def __init__(
        self,
        config: CarriedEvidence,
        problem: Problem,
        z_BL: Tensor,
        prior_NK: Tensor,
        carried: Mapping[str, Tensor],
    ) -> None:
        self.config = config
        self.problem = problem
        codebook_KD = problem.prior.tokenizer.codebook_KD
        self.tilt = Tilt(prior_NK, codebook_KD)
        self.rows_N = (z_BL == MASK).flatten().nonzero()[:, 0]
        self.decided_BLD = codebook_KD[z_BL.clamp(min=0)]
        self.u = carried["u"].float().clone()
        self.adam = torch.optim.Adam([self.u.requires_grad_()], lr=config.learning_rate, fused=True)
        if "step" in carried:
            self.adam.state[self.u] = {
                name: carried[name].float().clone() for name in ("step", "exp_avg", "exp_avg_sq")
            }

    def logits(self) -> Tensor:
        """Logits (N, K) of the masked tokens: the prior tilted by the evidence."""
        return self.tilt.logits(self.u.detach().flatten(0, 1)[self.rows_N])

    def run(self, watch: InnerWatch) -> list[float]:
        """Takes all Adam steps; returns the loss before each, mean over the samples."""
        losses: list[Tensor] = []
        for done in range(self.config.inner_steps):
            with torch.enable_grad():
                loss = self._loss()
                (self.u.grad,) = torch.autograd.grad(loss, self.u)
            self.adam.step()
            losses.append(loss.detach() / len(self.u))
            watch(done + 1, self.config.inner_steps, losses[-1], self.x_hat_BCHW)
        curve: list[float] = torch.stack(losses).tolist()
        if not math.isfinite(curve[-1]):
            raise SamplingDiverged(
                f"The loss became {curve[-1]}; lower the learning rate"
                f" ({self.config.learning_rate})."
            )
        return curve

    def _loss(self) -> Tensor:
        problem, config = self.problem, self.config
        u_ND = self.u.flatten(0, 1)[self.rows_N]
        x_bar_ND = self.tilt.expected_code(u_ND)
        tokenizer, objective, grid = problem.prior.tokenizer, problem.objective, problem.grid
        loss_B, self.misfit_B, x_hat_BCHW = quantized_loss(
            x_bar_ND, self._place, tokenizer, objective, grid
        )
        self.x_hat_BCHW = x_hat_BCHW.detach()
        loss = loss_B.sum()
        if config.prior_weight:
            kl_N = (u_ND * x_bar_ND).sum(-1) - self.tilt.logits(u_ND).logsumexp(-1)
            temperature = problem.objective.temperature or 1.0
            loss = loss + config.prior_weight * temperature * kl_N.sum()
        return loss

    def _place(self, x_ND: Tensor) -> Tensor:
        decided_RD = self.decided_BLD.flatten(0, 1)
        return decided_RD.index_copy(0, self.rows_N, x_ND).view_as(self.decided_BLD)

    def carried(self) -> dict[str, Tensor]:
        """Evidence and Adam's moments, for the next reverse step; in half precision, because a
        checkpoint holds them for every token.
        """
        moments = self.adam.state[self.u]
        return {
            "u": self.u.detach().half(),
            "step": moments["step"],
            **{name: moments[name].bfloat16() for name in ("exp_avg", "exp_avg_sq")},
        }
