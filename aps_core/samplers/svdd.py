"""SVDD: soft value-based decoding, guidance without derivatives.

Li et al., "Derivative-Free Guidance in Continuous and Discrete Diffusion Models with Soft
Value-Based Decoding" (2024, arXiv:2408.08252), Algorithm 1 in its posterior-mean form (SVDD-PM): of
M next states drawn from the prior's own transition, go on with the one whose predicted clean
picture has the best value. The value here is minus the objective; the predicted clean picture has
the prior's likeliest code at every masked token.
"""

from __future__ import annotations

import time

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Generator, Tensor

from aps_core.aps import Sample
from aps_core.samplers.prior import unmask
from aps_core.samplers.run import finish, report, start
from aps_core.sampling.random_ops import gumbel_perturbed
from aps_core.sampling.schedule import mask_fraction
from aps_core.types import MASK, Grid, Objective, Prior, SamplerState, StepHook, StepInfo


class SVDDConfig(BaseModel):
    """Settings of SVDD; ``candidates`` is the number of decodes a reverse step takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: int = Field(15, ge=1, le=1024, description="Reverse steps T.")
    candidates: int = Field(
        20,
        ge=1,
        le=10_000,
        description="Next states M drawn in every reverse step; the paper draws 20 for pictures.",
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


@torch.no_grad()
def sample_svdd(
    prior: Prior,
    objective: Objective,
    config: SVDDConfig,
    *,
    grid: Grid,
    generator: Generator,
    batch: int = 1,
    condition: str = "",
    on_step: StepHook | None = None,
    resume: SamplerState | None = None,
) -> Sample:
    """Draws ``batch`` samples by SVDD-PM. With one candidate this is
    :func:`aps_core.samplers.prior.sample_prior`.

    Raises:
        SamplingCancelled: ``on_step`` returned False.
    """
    z_BL, first = start(grid, generator, batch, resume)

    def predict(z_BL: Tensor, step: int) -> Tensor:
        fraction = mask_fraction(step / config.steps)
        return prior.logits(
            z_BL,
            grid=grid,
            mask_fraction=fraction,
            condition=condition,
            guidance_scale=config.guidance_scale,
        )

    logits_BLK = predict(z_BL, first) if first < config.steps else None
    for step in range(first, config.steps):
        assert logits_BLK is not None
        started, prior_seconds = time.perf_counter(), 0.0
        best: _Candidates | None = None
        curve: list[float] = []
        for _ in range(config.candidates):
            next_BL, _, kappa_BL = unmask(
                logits_BLK, z_BL, step, config.steps, config.order_temperature, generator
            )
            forward = time.perf_counter()
            logits_next_BLK = predict(next_BL, step + 1) if step + 1 < config.steps else logits_BLK
            prior_seconds += time.perf_counter() - forward
            clean_BL = torch.where(next_BL == MASK, logits_next_BLK.argmax(-1), next_BL)
            x_hat_BCHW = prior.tokenizer.decode(prior.tokenizer.codebook_KD[clean_BL], grid)
            loss_B, misfit_B = objective(x_hat_BCHW)
            curve.append(float(loss_B.mean()))
            # the largest of Gumbel-perturbed values is a draw by exp(value / alpha)
            value_B = gumbel_perturbed(
                -loss_B, config.temperature * objective.temperature, generator
            )
            fresh = _Candidates(value_B, next_BL, logits_next_BLK, kappa_BL, x_hat_BCHW, misfit_B)
            best = fresh if best is None else best.better(fresh)
        assert best is not None
        state = SamplerState(step + 1, best.z_BL, generator.get_state())
        anchors_BL = (z_BL == MASK) & (best.z_BL != MASK)
        misfit, seconds = float(best.misfit_B.mean()), time.perf_counter() - started
        report(
            on_step,
            StepInfo(
                state,
                config.steps,
                best.x_hat_BCHW,
                anchors_BL,
                best.kappa_BL,
                curve,
                misfit,
                seconds,
                prior_seconds,
            ),
        )
        z_BL, logits_BLK = best.z_BL, best.logits_BLK
    return finish(prior, objective, z_BL, grid)


class _Candidates:
    """One candidate of every sample, with all that is known about it; the first dimension is the
    sample's.
    """

    def __init__(
        self,
        value_B: Tensor,
        z_BL: Tensor,
        logits_BLK: Tensor,
        kappa_BL: Tensor,
        x_hat_BCHW: Tensor,
        misfit_B: Tensor,
    ) -> None:
        self.value_B, self.z_BL, self.logits_BLK, self.kappa_BL, self.x_hat_BCHW, self.misfit_B = (
            value_B,
            z_BL,
            logits_BLK,
            kappa_BL,
            x_hat_BCHW,
            misfit_B,
        )

    def better(self, other: _Candidates) -> _Candidates:
        """The one of larger value, for every sample on its own."""
        chosen_B = other.value_B > self.value_B
        pairs = zip(vars(other).values(), vars(self).values(), strict=True)
        return _Candidates(
            *(torch.where(chosen_B.view(-1, *[1] * (new.ndim - 1)), new, old) for new, old in pairs)
        )
