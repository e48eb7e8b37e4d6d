"""The paper's bounds as Monte-Carlo estimators: the NELBO, Theorem 1's training bound and Theorem
2's test-time bound.

Each bounds the negative log-probability that a chain of reverse kernels ends in given tokens ``x``.
A reverse kernel decides a masked token with probability ``r = (alpha_s - alpha_t) / (1 - alpha_t)``
and samples its code from a denoiser's prediction (Eq. rev). With a measurement it is tilted, token
by token, by the expected likelihood of the pictures that agree with the outcome (Eq.
aps-rev-per-token). Two conventions are left open by the paper. Decided tokens are predicted with
certainty, so only masked ones contribute. A token that stays masked is sampled from the prediction
like the others.

Evaluating a tilt takes B * completions * L * K likelihoods and is meant for problems like
:mod:`aps_core.theory.toy`. The NELBO takes one forward pass per step and works for every prior.
Shapes: B draws, L tokens, K codes; the last of K + 1 outcomes is "stays masked".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from aps_core.sampling.schedule import mask_fraction
from aps_core.types import MASK, Grid, Objective, Prior, Tokenizer

Denoiser = Callable[[Tensor, float], Tensor]
"""Maps tokens (B, L) and masked share in [0, 1] to log-probabilities (B, L, K) of every token's
code.
"""
LogLikelihood = Callable[[Tensor], Tensor]
"""log q(y | tokens) of complete tokens (B, L), (B,), up to a constant."""


@dataclass(frozen=True)
class Estimate:
    """A bound in nats, summed over reverse steps, with the terms named in the theorems."""

    total: float
    standard_error: float
    cross_entropy: float
    """Terms of the NELBO; for Theorem 2 those of the prior."""
    adaptation: float = 0.0
    """Theorem 2's log-ratio of the prior's prediction to the adapted prediction."""
    tilt: float = 0.0
    """Negative expected log-likelihoods."""
    partition: float = 0.0
    """Logarithms of the normalising factors."""


def denoiser(
    prior: Prior, grid: Grid, condition: str = "", guidance_scale: float = 0.0
) -> Denoiser:
    """The prediction ``x_theta`` of a prior."""

    def predict(z_BL: Tensor, mask_share: float) -> Tensor:
        return prior.logits(
            z_BL,
            grid=grid,
            mask_fraction=mask_share,
            condition=condition,
            guidance_scale=guidance_scale,
        ).log_softmax(-1)

    return predict


def nelbo(prior: Denoiser, x_L: Tensor, steps: int, draws: int, generator: Generator) -> Estimate:
    """Eq. nelbo: bounds -log p(x) of ancestral sampling in ``steps`` reverse steps. The
    reconstruction term is 0, as Z_0 = x.
    """
    return _estimate(prior, prior, None, x_L, steps, draws, 0, generator)


def ddps_bound(
    posterior: Denoiser,
    log_likelihood: LogLikelihood,
    x_L: Tensor,
    steps: int,
    draws: int,
    completions: int,
    generator: Generator,
) -> Estimate:
    """Theorem 1: bounds -log p(x | y) of the chain of tilted kernels around ``posterior``.

    Expected likelihoods are means over ``completions`` draws, shared by all outcomes. The
    normalising factor is convex in them, so few draws raise the estimate on average; it remains an
    upper bound.
    """
    return _estimate(
        posterior, posterior, log_likelihood, x_L, steps, draws, completions, generator
    )


def aps_bound(
    prior: Denoiser,
    posterior: Denoiser,
    log_likelihood: LogLikelihood,
    x_L: Tensor,
    steps: int,
    draws: int,
    completions: int,
    generator: Generator,
) -> Estimate:
    """Theorem 2: the same bound, written as the prior's NELBO plus the cost of adapting it to
    ``posterior`` and the measurement.
    """
    return _estimate(prior, posterior, log_likelihood, x_L, steps, draws, completions, generator)


def _estimate(
    prior: Denoiser,
    posterior: Denoiser,
    log_likelihood: LogLikelihood | None,
    x_L: Tensor,
    steps: int,
    draws: int,
    completions: int,
    generator: Generator,
) -> Estimate:
    """Computes all three bounds: terms (4, B) of every reverse step, each with its own draw of
    Z_t.
    """
    terms_4B = x_L.new_zeros(4, draws, dtype=torch.float32)
    x_BL = x_L.expand(draws, -1)
    with torch.no_grad():
        for step in range(steps):
            share, reveal = mask_fraction(step / steps), reveal_probability(step, steps)
            masked_BL = torch.rand(x_BL.shape, generator=generator, device=x_L.device) < share
            z_BL = torch.where(masked_BL, MASK, x_BL)
            theta_BLK, phi_BLK = prior(z_BL, share), posterior(z_BL, share)
            truth_BL1 = x_BL[..., None]
            log_theta_BL, log_phi_BL = (
                log_p.gather(-1, truth_BL1)[..., 0] for log_p in (theta_BLK, phi_BLK)
            )
            terms_4B[0] -= reveal * (log_theta_BL * masked_BL).sum(1)
            terms_4B[1] += reveal * ((log_theta_BL - log_phi_BL) * masked_BL).sum(1)
            if log_likelihood is not None:
                outcome_BLV = expected_log_likelihood(
                    phi_BLK, z_BL, log_likelihood, completions, generator
                )
                kept_BL, decided_BL = (
                    outcome_BLV[..., -1],
                    outcome_BLV.gather(-1, truth_BL1)[..., 0],
                )
                terms_4B[2] -= ((reveal * decided_BL + (1 - reveal) * kept_BL) * masked_BL).sum(1)
                terms_4B[3] += (tilted_kernel(phi_BLK, outcome_BLV, reveal)[1] * masked_BL).sum(1)
    total_B = terms_4B.sum(0)
    error = float(total_B.std()) / draws**0.5 if draws > 1 else float("inf")
    return Estimate(float(total_B.mean()), error, *(float(term) for term in terms_4B.mean(1)))


def reveal_probability(step: int, steps: int) -> float:
    """Probability (alpha_s - alpha_t) / (1 - alpha_t) that reverse step ``step`` of 0..steps-1
    decides a masked token.
    """
    before, after = (
        mask_fraction(step / steps),
        mask_fraction((step + 1) / steps) if step + 1 < steps else 0.0,
    )
    return (before - after) / before


def expected_log_likelihood(
    log_p_BLK: Tensor,
    z_BL: Tensor,
    log_likelihood: LogLikelihood,
    completions: int,
    generator: Generator,
) -> Tensor:
    """log q(y | x_phi(z; outcome)) for every token and outcome (B, L, K + 1).

    Mean log-likelihood of complete tokens sampled independently from the prediction, with the token
    set to the outcome. For the outcome "stays masked" the token is sampled as well.
    """
    (batch, length, codes), count = log_p_BLK.shape, completions
    drawn_BLN = torch.multinomial(
        log_p_BLK.exp().flatten(0, 1), count, replacement=True, generator=generator
    ).view(batch, length, count)
    x_BNL = torch.where(z_BL[..., None] == MASK, drawn_BLN, z_BL[..., None]).mT
    set_BNLKL = x_BNL[:, :, None, None].expand(-1, -1, length, codes, -1).clone()
    set_BNLKL.diagonal(dim1=2, dim2=4).copy_(
        torch.arange(codes, device=z_BL.device)[:, None].expand(codes, length)
    )
    decided_BLK = (
        log_likelihood(set_BNLKL.reshape(-1, length)).view(batch, count, length, codes).mean(1)
    )
    kept_B = log_likelihood(x_BNL.reshape(-1, length)).view(batch, count).mean(1)
    return torch.cat([decided_BLK, kept_B[:, None, None].expand(-1, length, 1)], dim=-1)


def tilted_kernel(log_p_BLK: Tensor, outcome_BLV: Tensor, reveal: float) -> tuple[Tensor, Tensor]:
    """Eq. aps-rev-per-token for masked tokens: log-probabilities of the K + 1 outcomes, and log
    normalising factors (B, L).
    """
    kept_BL1 = torch.full_like(log_p_BLK[..., :1], 1 - reveal)
    tilted_BLV = (
        torch.cat([log_p_BLK + torch.tensor(reveal).log(), kept_BL1.log()], dim=-1) + outcome_BLV
    )
    partition_BL = tilted_BLV.logsumexp(-1)
    return tilted_BLV - partition_BL[..., None], partition_BL


def surrogate(
    phi_BLK: Tensor,
    theta_BLK: Tensor,
    z_BL: Tensor,
    tokenizer: Tokenizer,
    objective: Objective,
    grid: Grid,
    reveal: float,
) -> Tensor:
    """Eq. qe (B,), differentiable in the logits ``phi``: agreement with the prior, plus L times the
    likelihood of the quantised expectation.

    Algorithm 1 only minimises the second term.
    """
    masked_BL = z_BL == MASK
    p_BLK = phi_BLK.softmax(-1)
    agreement_BL = (p_BLK * theta_BLK.softmax(-1)).sum(-1).log() * masked_BL
    x_bar_BLD = p_BLK @ tokenizer.codebook_KD
    x_tilde_BLD = x_bar_BLD + (tokenizer.quantize(x_bar_BLD.detach())[1] - x_bar_BLD).detach()
    e_BLD = torch.where(masked_BL[..., None], x_tilde_BLD, tokenizer.codebook_KD[z_BL.clamp(min=0)])
    loss_B = objective(tokenizer.decode(e_BLD, grid))[0]
    return -reveal * agreement_BL.sum(1) + z_BL.shape[1] * loss_B / objective.temperature
