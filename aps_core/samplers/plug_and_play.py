"""Plug and play: the prior as a denoiser of the running estimate, with a distribution per pixel.

Every round tells the prior the last estimate, and takes its answer log p(token | estimate) as the
prior of the tokens. Their expectation is then fitted to the measurement as in APS (lines 7-15 of
Algorithm 1), with logits ``log p + u . code`` of which only u is optimised (as in
:mod:`aps_core.samplers.carried_evidence`), held back by the divergence from the prior:

    min_u  -log q(y | decode(E[code])) + w KL(p_u || p)

The fitted picture is the next estimate; what tokens cannot hold is taken over from the last one.
This is half-quadratic splitting (Zhang et al. 2021, "Plug-and-Play Image Restoration with Deep
Denoiser Prior"), with the prior's own uncertainty of every pixel in the place of one weight and one
noise level for all. No token is an anchor: they are decided together after the last round.

Not in the paper. For priors that can be told an estimate (:class:`aps_core.types.ToldPrior`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from aps_core.errors import InvalidSpec
from aps_core.samplers.base import Step
from aps_core.samplers.corrected import CorrectedSampler
from aps_core.types import MASK, ToldPrior

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.sampling.driver import Problem
    from aps_core.sampling.evidence_fit import EvidenceFit
    from aps_core.sampling.inner_watch import InnerWatch
    from aps_core.types import SamplerState


FILLING = 4.0
"""Weight of the curvature of first estimates that fill gaps."""


class PlugAndPlay(CorrectedSampler):
    """Improves a smooth (total-variation) estimate in rounds: the prior corrects it, and the
    measurement corrects the prior.
    """

    type: Literal["plug_and_play"] = "plug_and_play"
    steps: int = Field(4, ge=1, le=128, description="Rounds T.")
    guidance_scale: float = Field(
        0.0,
        ge=0,
        le=20,
        description=(
            "How strongly the prompt is followed (classifier-free guidance g of (1+g) cond -"
            " g uncond), if the prior takes one and there is no measurement."
        ),
    )
    inner_steps: int = Field(
        15, ge=1, le=5000, description="Corrections in every round (Adam steps M on the evidence)."
    )
    learning_rate: float = Field(
        0.15, gt=0, le=20, description="Size of a correction (Adam's learning rate)."
    )
    prior_weight: float = Field(
        1.0,
        ge=0,
        le=100,
        description=(
            "How strongly corrections are held back by what the prior expects (weight of the KL"
            " divergence from it, in nats, beside the likelihood); 1 is the evidence lower bound."
        ),
    )
    spread: float | None = Field(
        None,
        ge=0,
        le=2,
        description=(
            "How far estimates are moved towards tokens drawn at random before the prior is told"
            " them. Default: 0 for one sample, 0.5 for several, so that they differ."
        ),
    )

    needs_told: ClassVar[bool] = True
    quantizes: ClassVar[bool] = False
    """The decoder of pixels is linear: it decodes expectations as they are."""

    def init(self, problem: Problem, z_BL: Tensor) -> None:
        """Nothing to prepare.

        Raises:
            InvalidSpec: the prior cannot be told an estimate.
        """
        if not isinstance(problem.prior, ToldPrior):
            raise InvalidSpec(
                "The sampler 'plug_and_play' needs a prior that can be told an estimate; choose"
                " another sampler."
            )

    def step(self, problem: Problem, memory: None, state: SamplerState) -> Step:
        """Asks the prior, and fits its answer to the measurement."""
        import torch

        z_BL, done = state.z_BL, state.step
        carried = dict(state.carried) or self._first(problem, z_BL)
        fit, curve = self._round(problem, z_BL, carried, problem.watch(done, self.steps))
        estimate_BCHW = fit.x_hat_BCHW.clamp(-1, 1)
        p_NK = fit.logits().softmax(-1)
        confidence_BL = p_NK.amax(-1).view_as(z_BL)
        spread = self.spread if self.spread is not None else 0.5 * (len(z_BL) > 1)
        if done + 1 == self.steps:
            # the codes nearest to the expectation: the most probable ones make a worse picture
            z_BL = problem.prior.tokenizer.encode(estimate_BCHW)
        elif spread:
            drawn_BL = torch.multinomial(p_NK, 1, generator=problem.generator).view_as(z_BL)
            away_BCHW = problem.decode(drawn_BL) + fit.rest_BCHW - fit.x_hat_BCHW
            estimate_BCHW = (estimate_BCHW + spread * away_BCHW).clamp(-1, 1)
        return Step(
            z_BL=z_BL,
            confidence_BL=confidence_BL,
            x_hat_BCHW=fit.x_hat_BCHW,
            misfit=float(fit.misfit_B.mean()),
            loss_curve=curve,
            carried={"estimate": estimate_BCHW.half(), **fit.carried()},
        )

    def _first(self, problem: Problem, z_BL: Tensor) -> dict[str, Tensor]:
        """The first estimate, and no evidence."""
        watch = problem.watch_beside(0, self.steps, 0, self.inner_steps)
        crude_BCHW = self.crude(problem, len(z_BL), watch, FILLING)
        codebook_KD = problem.prior.tokenizer.codebook_KD
        carried = {"u": codebook_KD.new_zeros(*z_BL.shape, codebook_KD.shape[1])}
        if crude_BCHW is not None:
            carried["estimate"] = crude_BCHW.half()
        return carried

    def _round(
        self,
        problem: Problem,
        z_BL: Tensor,
        carried: dict[str, Tensor],
        watch: InnerWatch,
    ) -> tuple[EvidenceFit, list[float]]:
        """One fit of all tokens, and its losses."""
        import torch

        from aps_core.sampling.evidence_fit import EvidenceFit

        open_BL = torch.full_like(z_BL, MASK)
        rest_BCHW: Tensor | float = 0.0
        if "estimate" in carried:
            assert isinstance(problem.prior, ToldPrior)
            estimate_BCHW = carried["estimate"].float()
            rest_BCHW = problem.prior.rest(estimate_BCHW)
            prior_BLK = problem.logits_told(open_BL, estimate_BCHW)
        else:
            prior_BLK = problem.logits(open_BL, 1.0, self.guidance_scale)
        prior_NK = prior_BLK.flatten(0, 1).log_softmax(-1)
        fit = EvidenceFit(self, problem, open_BL, prior_NK, carried, rest_BCHW)
        return fit, fit.run(watch)

    def decoded(self, problem: Problem, state: SamplerState) -> Tensor:
        """The last estimate, without the rounding to codes."""
        return state.carried["estimate"].float()

    @property
    def extra_passes(self) -> int:
        """As measured with a blur on a CPU: the first estimate and the final correction; and the
        decoder of pixels is cheap beside what else a round and an Adam step do.
        """
        return 80 + self.steps * (6 + 2 * self.inner_steps)
