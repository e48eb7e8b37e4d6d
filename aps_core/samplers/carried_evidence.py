"""Carried evidence: keeps the measurement's evidence about every token over all reverse steps, and
re-evaluates the prior in each.

APS optimises a table of logits (L, K) from the prior's logits at every reverse step and discards it
at the step's end. Here a token's logits are

    phi = beta log p(token | decided tokens) + u . code

an exponential tilt of the prior by a vector u of the codes' dimension D. Only u is optimised. It is
kept over all reverse steps, together with Adam's moments, so each step continues where the last one
ended. The prior's term always uses the tokens decided so far. u starts at the tokenizer's latent of
the total-variation estimate. One picture needs about a fifth of APS's decoder evaluations. At the
end, the picture is corrected by the measurement.

Not in the paper. Tokens are kept by its anchored remasking (lines 16-21 of Algorithm 1).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from aps_core.numerics.likelihood import MeasurementLikelihood
from aps_core.samplers.anchored import AnchoredSampler
from aps_core.samplers.base import REVERSE_STEPS
from aps_core.sampling.inner_watch import InnerWatch
from aps_core.sampling.problem import Problem, Step
from aps_core.sampling.random_ops import gumbel_perturbed
from aps_core.sampling.schedule import mask_fraction, masked_counts
from aps_core.types import MASK, SamplerState

if TYPE_CHECKING:
    from torch import Tensor


class CarriedEvidence(AnchoredSampler):
    """Carries what the measurement says about each token (the evidence) from round to round;
    starts from a smooth (total-variation) estimate and ends with a correction of the picture.
    """

    type: Literal["carried_evidence"] = "carried_evidence"
    steps: int = Field(10, ge=1, le=128, description=REVERSE_STEPS)
    inner_steps: int = Field(
        6, ge=1, le=5000, description="Corrections in every round (Adam steps M on the evidence)."
    )
    learning_rate: float = Field(
        0.3, gt=0, le=20, description="Size of a correction (Adam's learning rate on the evidence)."
    )
    prior_power: float = Field(
        1.0,
        ge=0,
        le=10,
        description=(
            "How much the prior's expectations count (power of its probabilities): 1 takes them as"
            " they are, 0 ignores them. The prior expects something of each token by itself, so"
            " what neighbouring tokens tell is counted several times; a power below 1 makes up for"
            " it."
        ),
    )
    prior_weight: float = Field(
        0.0,
        ge=0,
        le=10,
        description=(
            "How strongly corrections are held back by what the prior expects (weight of the KL"
            " divergence from it, in nats, beside the likelihood); 1 is the evidence lower bound."
        ),
    )
    start: float = Field(
        1.0,
        ge=0,
        le=10,
        description=(
            "How much a first estimate without the prior counts at the start: factor on the"
            " tokenizer's latent of the total-variation estimate. 0 starts from the prior alone."
        ),
    )

    correction: float = Field(
        0.0,
        ge=0,
        le=1000,
        description=(
            "Final correction of the picture by the measurement, which reproduces measured details"
            " that the tokenizer's codes cannot represent: weight of the total variation of the"
            " change. Higher values change less; 0 makes no correction."
        ),
    )
    smoothness: float = Field(
        0.0,
        ge=0,
        le=1000,
        description=(
            "How smooth the corrected picture becomes (weight of its own total variation)."
        ),
    )
    curvature: float = Field(
        0.0,
        ge=0,
        le=1000,
        description=(
            "How much the final correction continues slopes through missing or clipped pixels,"
            " which the total variation alone fills with steps (weight of the curvature of the"
            " picture and of its change). Without effect if there are none."
        ),
    )
    denoising: float | None = Field(
        None,
        ge=0,
        le=10,
        description=(
            "Smoothness of pictures with nothing but noise, times the noise's standard deviation."
            " If left out, that of all others (`smoothness`)."
        ),
    )

    def init(self, problem: Problem, z_BL: Tensor) -> int:
        """Counts the tokens to decide."""
        return int((z_BL == MASK).sum(1).amax())

    def step(self, problem: Problem, memory: int, state: SamplerState) -> Step:
        """Evaluates the prior, takes M Adam steps on the evidence and remasks all but anchors."""
        from aps_core.aps import anchored_remasking, quantized_loss
        from aps_core.sampling.evidence_fit import EvidenceFit

        z_BL, done, tokenizer = state.z_BL, state.step, problem.prior.tokenizer
        left = masked_counts(memory, self.steps)[done]
        before, after = mask_fraction(done / self.steps), mask_fraction((done + 1) / self.steps)
        carried = dict(state.carried) or {"u": self._first(problem, z_BL)}
        fraction = before * memory / z_BL.shape[1]
        prior_BLK = problem.logits(z_BL, fraction, self.guidance_scale)
        several = float(len(z_BL) > 1)
        noise = several if self.temperature is None else self.temperature
        prior_NK = gumbel_perturbed(prior_BLK[z_BL == MASK], noise, problem.generator)
        prior_NK = (self.prior_power * prior_NK).log_softmax(-1)
        evaluate = partial(
            quantized_loss, tokenizer=tokenizer, objective=problem.objective, grid=problem.grid
        )
        weight = self.prior_weight * (problem.objective.temperature or 1.0)
        fit = EvidenceFit(
            evaluate,
            tokenizer.codebook_KD,
            z_BL,
            prior_NK,
            carried,
            learning_rate=self.learning_rate,
            prior_weight=weight,
        )
        curve = fit.run(self.inner_steps, problem.watch(done, self.steps))
        keep = (before - after) / before
        z_next_BL, kappa_BL = anchored_remasking(
            fit.logits(), prior_NK, z_BL, tokenizer, self, left, keep, problem.generator
        )
        return Step(
            z_BL=z_next_BL,
            confidence_BL=kappa_BL,
            x_hat_BCHW=fit.x_hat_BCHW,
            misfit=float(fit.misfit_B.mean()),
            loss_curve=curve,
            carried=fit.carried(),
        )

    def _first(self, problem: Problem, z_BL: Tensor) -> Tensor:
        """Initial evidence u (B, L, D)."""
        from aps_core.sampling.first_estimate import first_estimate

        tokenizer = problem.prior.tokenizer
        codebook_KD = tokenizer.codebook_KD
        watch = problem.watch_beside(0, self.steps, 0, self.inner_steps)
        estimate_BCHW = first_estimate(problem, len(z_BL), watch) if self.start else None
        if estimate_BCHW is None:
            return codebook_KD.new_zeros(*z_BL.shape, codebook_KD.shape[1])
        latent_BDHW = tokenizer.features(estimate_BCHW.to(codebook_KD))
        return self.start * latent_BDHW.flatten(2).transpose(1, 2).contiguous()

    def finish(self, problem: Problem, x_BCHW: Tensor) -> Tensor:
        """Corrects the pictures of the last step by the measurement."""
        inner = self.inner_steps
        watch = problem.watch_beside(self.steps - 1, self.steps, inner, inner)
        return self.corrected(problem, x_BCHW, watch)

    def corrected(self, problem: Problem, x_BCHW: Tensor, watch: InnerWatch) -> Tensor:
        """Corrects pictures by the measurement, if its noise is known. If some pixels are missing
        or clipped, the others are the measured ones with their noise removed.
        """
        from aps_core.imaging.dct_shrinkage import without_noise
        from aps_core.imaging.total_variation import total_variation_estimate

        objective = problem.objective
        if not self.correction or not isinstance(objective, MeasurementLikelihood):
            return x_BCHW
        coverage, smoothness = objective.coverage(x_BCHW), self.smoothness
        if coverage == "pixels" and self.denoising is not None:
            # thresholds for noise are proportional to sigma (Donoho & Johnstone 1994), and the
            # likelihood is divided by sigma^2
            smoothness = self.denoising / objective.sigma
        x_BCHW = total_variation_estimate(
            objective,
            x_BCHW,
            weight=smoothness,
            correction_weight=self.correction,
            curvature_weight=self.curvature if coverage == "gaps" else 0.0,
            steps=100,
            learning_rate=0.03,
            watch=watch,
        )
        seen = objective.pixels(x_BCHW) if coverage == "gaps" else None
        return x_BCHW if seen is None else without_noise(seen, x_BCHW)

    @property
    def decodes(self) -> int:
        """One per Adam step."""
        return self.inner_steps

    @classmethod
    def for_decodes(cls, decodes: int) -> dict[str, Any]:
        """One Adam step per decode."""
        return {"inner_steps": max(1, decodes)}

    @property
    def extra_passes(self) -> int:
        """The first estimate and the final correction, as measured with a blur on a CPU."""
        return 30
