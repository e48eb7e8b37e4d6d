"""SVDD: soft value-based decoding, guidance without derivatives.

Li et al., "Derivative-Free Guidance in Continuous and Discrete Diffusion Models with Soft
Value-Based Decoding" (2024, arXiv:2408.08252), Algorithm 1 in its posterior-mean form (SVDD-PM).
Each step samples several candidate next states from the prior's transition and continues with the
one whose predicted clean picture has the highest value. Here the value is the negative objective,
and the predicted clean picture uses the prior's most likely code for every masked token.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.samplers.base import REVERSE_STEPS, SamplerSpec
from aps_core.samplers.prior import unmask
from aps_core.sampling.problem import Problem, Step
from aps_core.sampling.random_ops import gumbel_perturbed
from aps_core.sampling.schedule import mask_fraction
from aps_core.types import MASK, SamplerState

if TYPE_CHECKING:
    import torch
    from torch import Tensor

else:
    torch = lazy_import("torch")


class SVDDConfig(SamplerSpec):
    """SVDD: samples several candidate next states from the prior and continues with the best.

    With one candidate this is the prior alone.
    """

    type: Literal["svdd"] = "svdd"
    steps: int = Field(15, ge=1, le=1024, description=REVERSE_STEPS)
    candidates: int = Field(
        20,
        ge=1,
        le=10_000,
        description="Candidate next states per reverse step; the paper uses 20 for pictures.",
    )
    temperature: float = Field(
        0.0,
        ge=0,
        le=100,
        description=(
            "alpha, in the objective's own temperature: 0 keeps the best candidate (paper), 1 draws"
            " one by its likelihood."
        ),
    )
    order_temperature: float = Field(
        1.0,
        ge=0,
        le=1000,
        description="Noise on the prior's choice of tokens to keep, as for the prior alone.",
    )
    guidance_scale: float = Field(
        0.0, ge=0, le=20, description="Classifier-free guidance g of (1+g) cond - g uncond."
    )

    def init(self, problem: Problem, z_BL: Tensor) -> Ahead:
        """Cache of the chosen candidate's logits, reused by the next step."""
        return Ahead()

    def step(self, problem: Problem, memory: Ahead, state: SamplerState) -> Step:
        """Samples the candidates and keeps one per sample."""
        logits_BLK = memory.logits_BLK
        if logits_BLK is None:
            logits_BLK = self._predict(problem, state.z_BL, state.step)
        watch = problem.watch(state.step, self.steps)
        best: Candidate | None = None
        curve: list[float] = []
        for number in range(1, self.candidates + 1):
            fresh, loss_B = self._candidate(problem, logits_BLK, state)
            curve.append(float(loss_B.mean()))
            best = fresh if best is None else best.better(fresh)
            watch(number, self.candidates, loss_B.mean())
        assert best is not None
        memory.logits_BLK = best.logits_BLK
        return Step(
            z_BL=best.z_BL,
            confidence_BL=best.kappa_BL,
            x_hat_BCHW=best.x_hat_BCHW,
            misfit=float(best.misfit_B.mean()),
            loss_curve=curve,
        )

    @property
    def decodes(self) -> int:
        """One per candidate."""
        return self.candidates

    @classmethod
    def for_decodes(cls, decodes: int) -> dict[str, Any]:
        """One candidate per decode, at least one."""
        return {"candidates": max(1, decodes)}

    def _predict(self, problem: Problem, z_BL: Tensor, step: int) -> Tensor:
        return problem.logits(z_BL, mask_fraction(step / self.steps), self.guidance_scale)

    def _candidate(
        self, problem: Problem, logits_BLK: Tensor, state: SamplerState
    ) -> tuple[Candidate, Tensor]:
        """One next state per sample, and its loss (B,)."""
        step, generator = state.step, problem.generator
        next_BL, _, kappa_BL = unmask(
            logits_BLK, state.z_BL, step, self.steps, self.order_temperature, generator
        )
        ahead_BLK = logits_BLK
        if step + 1 < self.steps:
            ahead_BLK = self._predict(problem, next_BL, step + 1)
        x_hat_BCHW = problem.decode(torch.where(next_BL == MASK, ahead_BLK.argmax(-1), next_BL))
        loss_B, misfit_B = problem.objective(x_hat_BCHW)
        # Gumbel-max: the argmax is a sample from exp(value / alpha)
        value_B = gumbel_perturbed(
            -loss_B, self.temperature * problem.objective.temperature, generator
        )
        candidate = Candidate(
            value_B=value_B,
            z_BL=next_BL,
            logits_BLK=ahead_BLK,
            kappa_BL=kappa_BL,
            x_hat_BCHW=x_hat_BCHW,
            misfit_B=misfit_B,
        )
        return candidate, loss_B


@dataclass
class Ahead:
    """Logits (B, L, K) of the state that the next step starts from, or None if not computed."""

    logits_BLK: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One candidate next state per sample. The first dimension of every tensor is B."""

    value_B: Tensor
    z_BL: Tensor
    logits_BLK: Tensor
    kappa_BL: Tensor
    x_hat_BCHW: Tensor
    misfit_B: Tensor

    def better(self, other: Candidate) -> Candidate:
        """Per-sample argmax by value."""
        chosen_B = other.value_B > self.value_B

        def pick(name: str) -> Tensor:
            new, old = getattr(other, name), getattr(self, name)
            return torch.where(chosen_B.view(-1, *[1] * (new.ndim - 1)), new, old)

        return Candidate(**{field.name: pick(field.name) for field in fields(self)})
