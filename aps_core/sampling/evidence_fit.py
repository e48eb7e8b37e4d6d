"""The inner optimisation of :mod:`aps_core.samplers.carried_evidence`: Adam on the evidence u."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from aps_core.errors import SamplingDiverged
from aps_core.sampling.expectation import Tilt
from aps_core.sampling.inner_loop import Evaluate
from aps_core.sampling.inner_watch import InnerWatch
from aps_core.types import MASK


class EvidenceFit:
    """The evidence u (B, L, D) of one reverse step and its optimisation."""

    x_hat_BCHW: Tensor
    misfit_B: Tensor

    def __init__(
        self,
        evaluate: Evaluate,
        codebook_KD: Tensor,
        z_BL: Tensor,
        prior_NK: Tensor,
        carried: Mapping[str, Tensor],
        learning_rate: float,
        prior_weight: float,
    ) -> None:
        """
        Args:
            evaluate: maps expected codes (N, D) of the masked tokens to loss, misfit and picture.
            codebook_KD: embedding of every code.
            z_BL: tokens, ``MASK`` where undecided.
            prior_NK: the prior's log-probabilities of the masked tokens.
            carried: evidence and, after the first reverse step, Adam's moments.
            learning_rate: Adam's, on the evidence.
            prior_weight: weight of the divergence from the prior, in units of the loss per nat.
        """
        self.evaluate = evaluate
        self.learning_rate = learning_rate
        self.prior_weight = prior_weight
        self.tilt = Tilt(prior_NK, codebook_KD)
        self.rows_N = (z_BL == MASK).flatten().nonzero()[:, 0]
        self.decided_BLD = codebook_KD[z_BL.clamp(min=0)]
        self.u = carried["u"].float().clone()
        self.adam = torch.optim.Adam([self.u.requires_grad_()], lr=learning_rate, fused=True)
        if "step" in carried:
            self.adam.state[self.u] = {
                name: carried[name].float().clone() for name in ("step", "exp_avg", "exp_avg_sq")
            }

    def logits(self) -> Tensor:
        """Logits (N, K) of the masked tokens: the prior tilted by the evidence."""
        return self.tilt.logits(self.u.detach().flatten(0, 1)[self.rows_N])

    def run(self, steps: int, watch: InnerWatch) -> list[float]:
        """Takes ``steps`` Adam steps; returns the loss before each, mean over the samples.

        Raises:
            SamplingDiverged: the loss is not finite.
        """
        losses: list[Tensor] = []
        for done in range(steps):
            with torch.enable_grad():
                loss = self._loss()
                (self.u.grad,) = torch.autograd.grad(loss, self.u)
            self.adam.step()
            losses.append(loss.detach() / len(self.u))
            watch(done + 1, steps, losses[-1], self.x_hat_BCHW)
        curve: list[float] = torch.stack(losses).tolist()
        if not math.isfinite(curve[-1]):
            raise SamplingDiverged(
                f"The loss became {curve[-1]}; lower the learning rate ({self.learning_rate})."
            )
        return curve

    def _loss(self) -> Tensor:
        u_ND = self.u.flatten(0, 1)[self.rows_N]
        x_bar_ND = self.tilt.expected_code(u_ND)
        loss_B, self.misfit_B, x_hat_BCHW = self.evaluate(x_bar_ND, self._place)
        self.x_hat_BCHW = x_hat_BCHW.detach()
        loss = loss_B.sum()
        if self.prior_weight:
            kl_N = (u_ND * x_bar_ND).sum(-1) - self.tilt.logits(u_ND).logsumexp(-1)
            loss = loss + self.prior_weight * kl_N.sum()
        return loss

    def _place(self, x_ND: Tensor) -> Tensor:
        decided_RD = self.decided_BLD.flatten(0, 1)
        return decided_RD.index_copy(0, self.rows_N, x_ND).view_as(self.decided_BLD)

    def carried(self) -> dict[str, Tensor]:
        """Evidence and Adam's moments for the next reverse step, in half precision, because
        checkpoints store them for every token.
        """
        moments = self.adam.state[self.u]
        return {
            "u": self.u.detach().half(),
            "step": moments["step"],
            **{name: moments[name].bfloat16() for name in ("exp_avg", "exp_avg_sq")},
        }
