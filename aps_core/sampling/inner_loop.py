"""The inner optimisation of a reverse step: up to M Adam steps on the logits of the masked tokens.

Runs eagerly or as a CUDA graph, and synchronises with the device once, at the end. ``adaptive``
reads loss and misfit every few steps to decide whether to stop.

Shapes: R rows of the optimised logits, all B * L tokens if the step is *fixed*, else the N masked
ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from aps_core.errors import SamplingDiverged
from aps_core.sampling.cuda_graph import captured
from aps_core.sampling.inner_watch import UNWATCHED, InnerWatch
from aps_core.sampling.regularisers import regularisers
from aps_core.sampling.settings import InnerSettings
from aps_core.types import MASK

WINDOW, MIN_STEPS, PLATEAU = 5, 10, 0.005
"""Adaptive stop: checked every ``WINDOW`` steps after the first ``MIN_STEPS``. A relative
improvement of the loss below ``PLATEAU`` ends the optimisation.
"""

Place = Callable[[Tensor], Tensor]
"""Inserts embeddings (N, D) of the masked tokens between those of the decided ones: (B, L, D)."""

Evaluate = Callable[[Tensor, Place], tuple[Tensor, Tensor, Tensor]]
"""Maps logits (N, K) or expected codes (N, D) of the masked tokens to loss (B,), misfit (B,) and
decoded picture (B, 3, H, W).
"""


@dataclass(frozen=True)
class Optimised:
    """Result of one inner optimisation."""

    phi_NK: Tensor
    x_hat_BCHW: Tensor
    loss_curve: list[float]
    misfit: float


class InnerLoop:
    """The inner optimisations of one run. A CUDA graph is captured once and used by all reverse
    steps.
    """

    def __init__(
        self,
        evaluate: Evaluate,
        codebook_KD: Tensor,
        config: InnerSettings,
        noise_floor: float,
        graph: bool | None = None,
    ) -> None:
        fixed = codebook_KD.is_cuda if graph is None else graph
        self.step = InnerStep(evaluate, codebook_KD, config, fixed)
        self.config = config
        self.noise_floor = noise_floor
        self.replay: Callable[[], None] | None = None

    def run(
        self, start_NK: Tensor, z_BL: Tensor, keep: float, watch: InnerWatch = UNWATCHED
    ) -> Optimised:
        """Optimises the logits of the masked tokens of ``z``.

        Args:
            start_NK: initial logits of the masked tokens.
            z_BL: tokens, ``MASK`` where undecided.
            keep: factor in (0, 1] on the prior term of Eq. (qe).
            watch: reports progress between iterations.

        Raises:
            SamplingCancelled: the hook of ``watch`` returned False.
            SamplingDiverged: the loss is not finite.
        """
        step, limit = self.step, self.config.inner_steps
        step.begin(start_NK, z_BL, keep)
        losses = torch.zeros(max(1, limit), device=start_NK.device)
        used = 0
        if limit == 0:  # the prior's expectation is decoded once
            with torch.no_grad():
                step.forward()
            losses[0], used = step.loss, 1
        elif step.fixed and self.replay is None:
            self.replay = captured(step) if start_NK.is_cuda else step
            step.begin(start_NK, z_BL, keep)  # the warm-up moved the logits
        advance = self.replay or step
        while used < limit and not (used % WINDOW == 0 and self._converged(losses[:used])):
            advance()
            losses[used] = step.loss
            used += 1
            watch(used, limit, step.loss / len(z_BL), step.x_hat_BCHW)
        curve = (losses[:used] / len(z_BL)).tolist()
        if not math.isfinite(curve[-1]):
            raise SamplingDiverged(
                f"The loss became {curve[-1]} after {used} inner steps; lower the learning rate"
                f" ({self.config.learning_rate})."
            )
        return Optimised(step.phi_NK, step.x_hat_BCHW.clone(), curve, float(step.misfit_B.mean()))

    def _converged(self, losses: Tensor) -> bool:
        """True on a plateau of the loss, or if every sample's misfit is at the noise floor."""
        if self.config.inner != "adaptive" or len(losses) < MIN_STEPS:
            return False
        *recent, worst = torch.cat(
            [losses[-2 * WINDOW :], self.step.misfit_B.max()[None]]
        ).tolist()  # one synchronisation for both
        plateau = min(recent[WINDOW:]) > (1 - PLATEAU) * min(recent[:WINDOW])
        return bool(plateau or worst <= self.noise_floor)


class InnerStep:
    """One Adam step on the logits, lines 8-14 of Algorithm 1.

    A *fixed* step keeps the shape and address of every tensor for the whole run, as a CUDA graph
    requires. It optimises the rows of all B * L tokens; rows of decided tokens have no effect.
    Otherwise only the N masked rows are optimised.
    """

    adam: torch.optim.Adam
    loss: Tensor
    misfit_B: Tensor
    x_hat_BCHW: Tensor

    def __init__(
        self, evaluate: Evaluate, codebook_KD: Tensor, config: InnerSettings, fixed: bool
    ) -> None:
        self.evaluate = evaluate
        self.codebook_KD = codebook_KD
        self.config = config
        self.fixed = fixed
        self.tensors: dict[str, Tensor] = {}

    def begin(self, start_NK: Tensor, z_BL: Tensor, keep: float) -> None:
        """Starts a reverse step from the logits ``start`` of the masked tokens and resets Adam."""
        masked_R = (z_BL == MASK).flatten()
        self.rows_N = masked_R.nonzero()[:, 0]
        phi = (
            start_NK.new_zeros(len(masked_R), start_NK.shape[1]).index_copy(
                0, self.rows_N, start_NK
            )
            if self.fixed
            else start_NK.clone()
        )
        fresh = {
            "phi": phi,
            "decided": self.codebook_KD[z_BL.clamp(min=0)],
            "masked": masked_R,
            "pull": phi.new_tensor(self.config.prior_weight * keep),
        }
        if self.config.prior_weight:
            fresh["prior"] = torch.softmax(phi, dim=-1)
        if self.fixed and self.tensors:
            for name, value in fresh.items():
                self.tensors[name].data.copy_(value)
            for value in self.adam.state[self.tensors["phi"]].values():
                value.zero_()
        else:
            self.tensors = fresh
            self.adam = torch.optim.Adam(
                [phi.requires_grad_()],
                lr=self.config.learning_rate,
                fused=True,
                capturable=self.fixed,
            )

    def place(self, x_ND: Tensor) -> Tensor:
        """Inserts embeddings (R, D) of the masked tokens between the decided ones: (B, L, D)."""
        decided_BLD = self.tensors["decided"]
        decided_RD = decided_BLD.flatten(0, 1)
        x_RD = (
            torch.where(self.tensors["masked"][:, None], x_ND, decided_RD)
            if self.fixed
            else decided_RD.index_copy(0, self.rows_N, x_ND)
        )
        return x_RD.view_as(decided_BLD)

    def forward(self) -> Tensor:
        """Returns the loss at the current logits and sets ``loss``, ``misfit_B`` and
        ``x_hat_BCHW``.
        """
        phi = self.tensors["phi"]
        loss_B, self.misfit_B, x_hat_BCHW = self.evaluate(phi, self.place)  # lines 8-13
        loss = loss_B.sum()
        if self.config.prior_weight or self.config.entropy_weight:
            counted = self.tensors["masked"] if self.fixed else self.tensors["masked"][self.rows_N]
            loss = loss + regularisers(
                phi,
                self.tensors.get("prior"),
                self.tensors["pull"],
                self.config.entropy_weight,
                counted,
            )
        self.loss = loss.detach()
        self.x_hat_BCHW = x_hat_BCHW.detach()
        return loss

    def __call__(self) -> None:
        """Evaluates the loss and takes one Adam step."""
        phi = self.tensors["phi"]
        with torch.enable_grad():
            (phi.grad,) = torch.autograd.grad(self.forward(), phi)
        self.adam.step()  # line 14

    @property
    def phi_NK(self) -> Tensor:
        """The current logits of the masked tokens."""
        phi = self.tensors["phi"].detach()
        return phi[self.rows_N] if self.fixed else phi
