"""SGDD: split Gibbs discrete diffusion posterior sampling.

Chu et al., "Split Gibbs Discrete Diffusion Posterior Sampling" (2025, arXiv:2503.01161). Two copies
of the tokens alternate, tied by the Hamming distance more and more tightly: a *prior step* draws x
given z by denoising from noise level t, a *likelihood step* draws z given x and the measurement by
Metropolis-Hastings.

For a masked prior the prior step masks a share t of z and denoises ancestrally (Eq. rev); the
paper's uniform noise has no counterpart in such a model. The potential between the copies is the
paper's, with its authors' release as reference: a token differs with probability ``beta = (1 - (1 -
t)**alpha) (1 - 1/K)``.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Generator, Tensor

from aps_core.aps import Sample
from aps_core.samplers.run import finish, report, start
from aps_core.sampling.random_ops import categorical
from aps_core.types import MASK, Grid, Objective, Prior, SamplerState, StepHook, StepInfo, Tokenizer


class SGDDConfig(BaseModel):
    """Settings of SGDD, the release's for pictures; ``mh_steps`` + 1 is the number of decodes a
    sweep takes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: int = Field(70, ge=1, le=1024, description="Gibbs sweeps.")
    denoise_steps: int = Field(
        64, ge=1, le=1024, description="Prior steps a sweep denoises in, at most."
    )
    mh_steps: int = Field(
        5000, ge=0, le=100_000, description="Metropolis-Hastings proposals a sweep."
    )
    alpha: float = Field(
        10.0,
        gt=0,
        le=100,
        description=(
            "Looseness of the coupling: noise level of the likelihood step over the prior step's."
        ),
    )
    guidance_scale: float = Field(
        0.0, ge=0, le=20, description="Classifier-free guidance g of (1+g) cond - g uncond."
    )


@torch.no_grad()
def sample_sgdd(
    prior: Prior,
    objective: Objective,
    config: SGDDConfig,
    *,
    grid: Grid,
    generator: Generator,
    batch: int = 1,
    condition: str = "",
    on_step: StepHook | None = None,
    resume: SamplerState | None = None,
) -> Sample:
    """Draws ``batch`` posterior samples by split Gibbs sampling; the noise level falls linearly
    from 1.

    Raises:
        SamplingCancelled: ``on_step`` returned False.
    """
    z_BL, first = start(grid, generator, batch, resume)
    codes = len(prior.tokenizer.codebook_KD)
    for sweep in range(first, config.steps):
        started = time.perf_counter()
        level = 1 - sweep / config.steps
        noised_BL = torch.where(
            torch.rand(z_BL.shape, generator=generator, device=z_BL.device) < level, MASK, z_BL
        )
        x_BL = denoise(prior, noised_BL, config, grid, condition, generator)
        prior_seconds = time.perf_counter() - started
        chain = metropolis_hastings(
            x_BL,
            prior.tokenizer,
            objective,
            grid,
            hamming_log_odds(level, config.alpha, codes),
            config.mh_steps,
            generator,
        )
        z_BL = chain.z_BL
        state = SamplerState(sweep + 1, z_BL, generator.get_state())
        moved_BL = z_BL != x_BL
        seconds = time.perf_counter() - started
        report(
            on_step,
            StepInfo(
                state,
                config.steps,
                chain.x_hat_BCHW,
                noised_BL == MASK,
                moved_BL.float(),
                chain.loss_curve,
                chain.misfit,
                seconds,
                prior_seconds,
            ),
        )
    return finish(prior, objective, z_BL, grid)


def denoise(
    prior: Prior, z_BL: Tensor, config: SGDDConfig, grid: Grid, condition: str, generator: Generator
) -> Tensor:
    """Draws all masked tokens from the prior, in random order over ``denoise_steps`` steps."""
    masked_BL = z_BL == MASK
    step_BL = torch.randint(
        config.denoise_steps, z_BL.shape, generator=generator, device=z_BL.device
    )
    for step in torch.unique(step_BL[masked_BL]).tolist():
        revealed_BL = masked_BL & (step_BL == step)
        fraction = float((z_BL == MASK).float().mean())
        logits_BLK = prior.logits(
            z_BL,
            grid=grid,
            mask_fraction=fraction,
            condition=condition,
            guidance_scale=config.guidance_scale,
        )
        z_BL = z_BL.masked_scatter(
            revealed_BL, categorical(logits_BLK[revealed_BL].softmax(-1), generator)
        )
    return z_BL


def hamming_log_odds(level: float, alpha: float, codes: int) -> float:
    """Log-odds of a token of z to differ from x's, at noise ``level`` in (0, 1]."""
    beta = (1 - (1 - level) ** alpha) * (1 - 1 / codes)
    return math.log(beta) - math.log1p(-beta)


@dataclass(frozen=True)
class Chain:
    """End of a Metropolis-Hastings chain, and what it cost: one loss a decode, mean over the
    batch.
    """

    z_BL: Tensor
    x_hat_BCHW: Tensor
    loss_curve: list[float]
    misfit: float


def metropolis_hastings(
    x_BL: Tensor,
    tokenizer: Tokenizer,
    objective: Objective,
    grid: Grid,
    log_odds: float,
    steps: int,
    generator: Generator,
) -> Chain:
    """Draws z from ``exp(-loss(z) / temperature + log_odds * hamming(z, x))``, each sample with a
    chain of its own from x.

    A proposal replaces one random token by a random code. An objective of unknown temperature (0)
    accepts only what lowers the loss.
    """

    def evaluate(z_BL: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x_hat_BCHW = tokenizer.decode(tokenizer.codebook_KD[z_BL], grid)
        loss_B, misfit_B = objective(x_hat_BCHW)
        curve.append(float(loss_B.mean()))
        return z_BL, x_hat_BCHW, loss_B, misfit_B

    curve: list[float] = []
    device, (batch, length), codes = x_BL.device, x_BL.shape, len(tokenizer.codebook_KD)
    current = evaluate(x_BL)
    for _ in range(steps):
        where_B1 = torch.randint(length, (batch, 1), generator=generator, device=device)
        code_B1 = torch.randint(codes, (batch, 1), generator=generator, device=device)
        proposed = evaluate(current[0].scatter(1, where_B1, code_B1))
        gain_B = current[2] - proposed[2]
        closer_B = ((current[0] != x_BL).sum(1) - (proposed[0] != x_BL).sum(1)).to(gain_B.dtype)
        threshold_B = torch.rand(batch, generator=generator, device=device).clamp(min=1e-20).log()
        if objective.temperature:
            accepted_B = gain_B / objective.temperature - log_odds * closer_B > threshold_B
        else:
            accepted_B = gain_B > 0
        current = tuple(  # type: ignore[assignment]
            torch.where(accepted_B.view(-1, *[1] * (new.ndim - 1)), new, old)
            for new, old in zip(proposed, current, strict=True)
        )
    return Chain(current[0], current[1], curve, float(current[3].mean()))
