"""Algorithm 1 of the paper: test-time anchored posterior sampling (APS).

Names follow the paper: ``phi`` optimised logits, ``x_bar`` expected code, ``x_tilde`` its
straight-through quantisation, ``x_hat`` decoded picture, ``kappa`` token confidence.
Shapes: B samples, L tokens, K codes, D code dimension, N masked tokens of all samples together.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from aps_core.config import APSConfig
from aps_core.errors import SamplingCancelled, SamplingDiverged
from aps_core.schedule import mask_fraction, masked_counts
from aps_core.types import MASK, Grid, Objective, Prior, SamplerState, StepHook, StepInfo, Tokenizer


@dataclass(frozen=True)
class Sample:
    """Outcome of a run: codes (B, L) and decoded pictures (B, 3, H, W)."""

    z_BL: Tensor
    x_BCHW: Tensor
    misfit_B: Tensor


@dataclass(frozen=True)
class Fit:
    """Outcome of one inner optimisation."""

    phi_NK: Tensor
    x_hat_BCHW: Tensor
    loss_curve: list[float]
    misfit: float


def sample_aps(
    prior: Prior,
    objective: Objective,
    config: APSConfig,
    *,
    grid: Grid,
    generator: Generator,
    batch: int = 1,
    condition: str = "",
    on_step: StepHook | None = None,
    resume: SamplerState | None = None,
) -> Sample:
    """Draws ``batch`` posterior samples on a token ``grid`` by Algorithm 1.

    Every random draw comes from ``generator``. A run resumed from a :class:`SamplerState` gives the
    same tokens as one that was never interrupted.

    Raises:
        SamplingCancelled: ``on_step`` returned False.
        SamplingDiverged: the loss is not finite.
    """
    num_tokens = grid[0] * grid[1]
    z_BL = torch.full((batch, num_tokens), MASK, device=generator.device)  # line 4: all masked
    first = 0
    if resume is not None:
        z_BL, first = resume.z_BL.to(generator.device), resume.step
        generator.set_state(resume.generator_state)
    temperature = config.temperature if config.temperature is not None else float(batch > 1)
    for step, left in list(enumerate(masked_counts(num_tokens, config.steps)))[first:]:  # line 5
        started = time.perf_counter()
        before, after = mask_fraction(step / config.steps), mask_fraction((step + 1) / config.steps)
        keep = (before - after) / before  # (alpha_s - alpha_t) / (1 - alpha_t)
        with torch.no_grad():
            prior_BLK = prior.logits(z_BL, grid=grid, mask_fraction=before, condition=condition, guidance_scale=config.guidance_scale)  # line 6
        prior_seconds = time.perf_counter() - started
        masked_BL = z_BL == MASK
        start_NK = gumbel_perturbed(prior_BLK[masked_BL], temperature, generator)
        fit = quantized_expectation(start_NK, z_BL, prior.tokenizer, objective, config, grid, keep)
        z_next_BL, kappa_BL = anchored_remasking(fit.phi_NK, prior_BLK[masked_BL], z_BL, prior.tokenizer, config, left, keep, generator)
        info = StepInfo(
            state=SamplerState(step + 1, z_next_BL, generator.get_state()),
            total=config.steps,
            x_hat_BCHW=fit.x_hat_BCHW,
            anchors_BL=masked_BL & (z_next_BL != MASK),
            confidence_BL=kappa_BL,
            loss_curve=fit.loss_curve,
            misfit=fit.misfit,
            seconds=time.perf_counter() - started,
            prior_seconds=prior_seconds,
        )
        z_BL = z_next_BL
        if on_step is not None and on_step(info) is False:
            raise SamplingCancelled(f"Stopped after reverse step {step + 1} of {config.steps}.")
    with torch.no_grad():
        x_BCHW = prior.tokenizer.decode(prior.tokenizer.codebook_KD[z_BL], grid)  # line 23
        return Sample(z_BL, x_BCHW, objective(x_BCHW)[1])  # line 24


def quantized_expectation(prior_NK: Tensor, z_BL: Tensor, tokenizer: Tokenizer, objective: Objective, config: APSConfig, grid: Grid, keep: float) -> Fit:
    """Lines 7-15: optimises the masked tokens' logits so that the decoded expectation agrees with the measurement.

    Decided tokens are clamped to their code, so only the N masked rows carry gradients, and Adam
    starts afresh in every reverse step.
    """
    masked_BL = z_BL == MASK
    decided_BLD = tokenizer.codebook_KD[z_BL.clamp(min=0)]
    phi_NK = prior_NK.clone().requires_grad_()
    adam = torch.optim.Adam([phi_NK], lr=config.learning_rate, fused=True)
    curve: list[float] = []
    for _ in range(max(1, config.inner_steps)):  # line 7; with M = 0 the prior's expectation is decoded once
        p_NK = torch.softmax(phi_NK, dim=-1)  # line 8
        x_bar_ND = p_NK @ tokenizer.codebook_KD  # line 9
        x_ND = tokenizer.quantize(x_bar_ND.detach())[1]  # line 10
        x_tilde_ND = x_bar_ND + (x_ND - x_bar_ND).detach()  # line 11: straight-through
        x_hat_BCHW = tokenizer.decode(decided_BLD.index_put((masked_BL,), x_tilde_ND), grid)  # line 12
        loss_B, misfit_B = objective(x_hat_BCHW)  # line 13
        loss = loss_B.sum() + _regularisers(p_NK, prior_NK, config, keep)
        curve.append(float(loss.detach()) / len(z_BL))
        if config.inner_steps == 0 or _converged(curve, misfit_B, objective, config):
            break
        adam.zero_grad()
        loss.backward()
        adam.step()  # line 14
    if not torch.isfinite(loss):
        raise SamplingDiverged(f"The loss became {curve[-1]} after {len(curve)} inner steps; lower the learning rate ({config.learning_rate}).")
    return Fit(phi_NK.detach(), x_hat_BCHW.detach(), curve, float(misfit_B.mean()))


def gumbel_perturbed(logits_NK: Tensor, temperature: float, generator: Generator) -> Tensor:
    """Logits plus scaled Gumbel noise: at temperature 1 the largest is a draw from softmax(logits).

    Algorithm 1 itself is deterministic; this is what makes several samples differ.
    """
    if temperature == 0:
        return logits_NK
    uniform = torch.rand(logits_NK.shape, generator=generator, device=logits_NK.device)
    return logits_NK - temperature * torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))


def anchored_remasking(
    phi_NK: Tensor, prior_NK: Tensor, z_BL: Tensor, tokenizer: Tokenizer, config: APSConfig, left: int, keep: float, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Lines 16-21: keeps the most trusted optimised tokens (the anchors), re-masks the rest until ``left`` stay masked.

    Returns the next state (B, L) and the score of every masked token (B, L), -inf where decided.
    """
    masked_BL = z_BL == MASK
    x_bar_ND = torch.softmax(phi_NK, dim=-1) @ tokenizer.codebook_KD  # lines 16-17
    x_N = tokenizer.quantize(x_bar_ND)[0]  # line 18
    trusted_NK = {"posterior": phi_NK, "prior": prior_NK, "random": phi_NK}[config.remasking]
    kappa_N = token_score(trusted_NK, x_N, config.anchor_score)  # line 19
    if config.remasking == "random":
        kappa_N = torch.rand(kappa_N.shape, generator=generator, device=kappa_N.device)
    kappa_BL = kappa_N.new_full(z_BL.shape, -torch.inf).masked_scatter(masked_BL, kappa_N)
    if config.anchor_temperature:
        kappa_BL = gumbel_perturbed(standardised(kappa_BL, masked_BL), config.anchor_temperature, generator)
    wanted_B = (masked_BL.sum(1) - left).clamp(min=0)
    rank_BL = kappa_BL.argsort(dim=1, descending=True, stable=True).argsort(dim=1, stable=True)
    anchors_BL = masked_BL & (rank_BL < wanted_B[:, None])  # line 20: tau_t is the score of rank `wanted`
    if config.state_update == "bernoulli" and left > 0:
        anchors_BL &= torch.rand(z_BL.shape, generator=generator, device=z_BL.device) < keep
    x_BL = z_BL.masked_scatter(masked_BL, x_N)
    return torch.where(anchors_BL, x_BL, z_BL), kappa_BL  # line 21


def standardised(kappa_BL: Tensor, masked_BL: Tensor) -> Tensor:
    """Scores shifted and scaled to mean 0 and deviation 1 over each sample's masked tokens; -inf stays where decided."""
    count_B1 = masked_BL.sum(1, keepdim=True).clamp(min=1)
    centred_BL = kappa_BL - kappa_BL.masked_fill(~masked_BL, 0).sum(1, keepdim=True) / count_B1
    variance_B1 = centred_BL.masked_fill(~masked_BL, 0).square().sum(1, keepdim=True) / count_B1
    return centred_BL / variance_B1.sqrt().clamp(min=1e-12)


def token_score(logits_NK: Tensor, x_N: Tensor, kind: str) -> Tensor:
    """Trust in token ``x`` under softmax(logits), one value a row, larger is better.

    ``confidence`` is the paper's ``kappa = <softmax, x>`` as log-odds: the same order, but probabilities
    saturate at 1 in float32 after a long optimisation and would leave the order to chance.
    """
    if kind == "entropy":
        log_p_NK = torch.log_softmax(logits_NK, dim=-1)
        return (log_p_NK.exp() * log_p_NK).sum(-1)
    chosen_N = logits_NK.gather(-1, x_N[:, None])[:, 0]
    others_NK = logits_NK.scatter(-1, x_N[:, None], -torch.inf)
    rival_N = others_NK.logsumexp(-1) if kind == "confidence" else others_NK.amax(-1)
    return chosen_N - rival_N


def _regularisers(p_NK: Tensor, prior_NK: Tensor, config: APSConfig, keep: float) -> Tensor:
    """The terms Algorithm 1 leaves out: Eq. (qe)'s agreement with the prior, and the tokens' entropy."""
    total = p_NK.new_zeros(())
    if config.prior_weight:
        agreement_N = (p_NK * torch.softmax(prior_NK, dim=-1)).sum(-1)
        total = total - config.prior_weight * keep * agreement_N.clamp(min=1e-30).log().sum()
    if config.entropy_weight:
        total = total - config.entropy_weight * (p_NK * p_NK.clamp(min=1e-30).log()).sum()
    return total


def _converged(curve: list[float], misfit_B: Tensor, objective: Objective, config: APSConfig) -> bool:
    """Adaptive stop: every fifth iteration, on a plateau (< 0.5 % better than five before) or at the noise floor."""
    if config.inner != "adaptive" or len(curve) < 10 or len(curve) % 5:
        return False
    plateau = min(curve[-5:]) > 0.995 * min(curve[-10:-5])
    return plateau or bool(misfit_B.max() <= objective.noise_floor)
