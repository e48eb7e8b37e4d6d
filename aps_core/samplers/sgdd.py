"""SGDD: split Gibbs discrete diffusion posterior sampling.

Chu et al., "Split Gibbs Discrete Diffusion Posterior Sampling" (2025, arXiv:2503.01161). Two copies
x and z of the tokens are updated in turn. A penalty on their Hamming distance grows over the run. A
*prior step* samples x given z by denoising from noise level t. A *likelihood step* samples z given
x and the measurement by Metropolis-Hastings.

With a masked prior, the prior step masks a share t of z and denoises ancestrally (Eq. rev); such a
model has no counterpart of the paper's uniform noise. The potential between the copies follows the
paper and its authors' released code: every token that differs adds the log-odds of
``beta = (1 - (1 - t)**alpha) (1 - 1/K)``, the chance that noise t changes a token. (It is not
divided among the K - 1 other codes.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.samplers.base import SamplerSpec
from aps_core.sampling.inner_watch import UNWATCHED, InnerWatch
from aps_core.sampling.problem import Problem, Step
from aps_core.sampling.random_ops import categorical
from aps_core.types import MASK, Grid, Objective, SamplerState, Tokenizer

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

else:
    torch = lazy_import("torch")


class SGDDConfig(SamplerSpec):
    """SGDD: alternates denoising by the prior with Metropolis-Hastings steps on the measurement.

    Defaults are those of the authors' released code for pictures. The noise level falls linearly
    from 1.
    """

    type: Literal["sgdd"] = "sgdd"
    steps: int = Field(
        70,
        ge=1,
        le=1024,
        description="Rounds, each of the prior and then of the measurement (Gibbs sweeps).",
    )
    denoise_steps: int = Field(
        64, ge=1, le=1024, description="Maximum number of prior steps in a round."
    )
    mh_steps: int = Field(
        5000,
        ge=0,
        le=100_000,
        description="Changes tried in a round (Metropolis-Hastings proposals).",
    )
    alpha: float = Field(
        10.0,
        gt=0,
        le=100,
        description=(
            "Noise level of the likelihood step relative to the prior step's; higher couples less."
        ),
    )
    guidance_scale: float = Field(
        0.0, ge=0, le=20, description="Classifier-free guidance g of (1+g) cond - g uncond."
    )

    def step(self, problem: Problem, memory: Any, state: SamplerState) -> Step:
        """One Gibbs sweep: a prior step, then a likelihood step."""
        z_BL, level = state.z_BL, 1 - state.step / self.steps
        noised_BL = torch.where(problem.uniform(z_BL.shape) < level, MASK, z_BL)
        x_BL = denoise(problem, noised_BL, self)
        tokenizer = problem.prior.tokenizer
        chain = metropolis_hastings(
            x_BL,
            tokenizer,
            problem.objective,
            problem.grid,
            hamming_log_odds(level, self.alpha, len(tokenizer.codebook_KD)),
            self.mh_steps,
            problem.generator,
            problem.watch(state.step, self.steps),
        )
        return Step(
            z_BL=chain.z_BL,
            confidence_BL=(chain.z_BL != x_BL).float(),
            anchors_BL=noised_BL == MASK,
            x_hat_BCHW=chain.x_hat_BCHW,
            misfit=chain.misfit,
            loss_curve=chain.loss_curve,
        )

    @property
    def decodes(self) -> int:
        """One for the start of the chain and one per proposal."""
        return self.mh_steps + 1

    @classmethod
    def for_decodes(cls, decodes: int) -> dict[str, Any]:
        """One proposal per decode after the first."""
        return {"mh_steps": max(0, decodes - 1)}


def denoise(problem: Problem, z_BL: Tensor, config: SGDDConfig) -> Tensor:
    """Samples all masked tokens from the prior, in random order over ``denoise_steps`` steps."""
    masked_BL, generator = z_BL == MASK, problem.generator
    step_BL = torch.randint(
        config.denoise_steps, z_BL.shape, generator=generator, device=z_BL.device
    )
    for step in torch.unique(step_BL[masked_BL]).tolist():
        revealed_BL = masked_BL & (step_BL == step)
        fraction = float((z_BL == MASK).float().mean())
        logits_BLK = problem.logits(z_BL, fraction, config.guidance_scale)
        z_BL = z_BL.masked_scatter(
            revealed_BL, categorical(logits_BLK[revealed_BL].softmax(-1), generator)
        )
    return z_BL


def hamming_log_odds(level: float, alpha: float, codes: int) -> float:
    """Log-odds that every token of z that differs from x adds to the log-probability of z, at noise
    ``level`` in (0, 1].
    """
    beta = (1 - (1 - level) ** alpha) * (1 - 1 / codes)
    return math.log(beta) - math.log1p(-beta)


@dataclass(frozen=True)
class Chain:
    """Result of a Metropolis-Hastings chain.

    ``loss_curve`` holds one loss per decode, mean over the batch.
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
    watch: InnerWatch = UNWATCHED,
) -> Chain:
    """Samples z from ``exp(-loss(z) / temperature + log_odds * hamming(z, x))`` with one chain per
    sample.

    A proposal replaces one random token by a random code. With an objective of unknown temperature
    (0), only proposals that lower the loss are accepted.

    Args:
        x_BL: start of the chains; codes.
        tokenizer: codebook and decoder.
        objective: loss of a decoded picture.
        grid: rows and columns of the token grid.
        log_odds: log-odds that a token differs from ``x``.
        steps: number of proposals.
        generator: source of random numbers.
        watch: reports progress after every proposal.

    Raises:
        SamplingCancelled: the hook of ``watch`` returned False.
    """

    def evaluate(z_BL: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x_hat_BCHW = tokenizer.decode(tokenizer.codebook_KD[z_BL], grid)
        loss_B, misfit_B = objective(x_hat_BCHW)
        curve.append(float(loss_B.mean()))
        return z_BL, x_hat_BCHW, loss_B, misfit_B

    curve: list[float] = []
    device, (batch, length), codes = x_BL.device, x_BL.shape, len(tokenizer.codebook_KD)
    current = evaluate(x_BL)
    for proposal in range(1, steps + 1):
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
        watch(proposal, steps, current[2].mean())
    return Chain(current[0], current[1], curve, float(current[3].mean()))
