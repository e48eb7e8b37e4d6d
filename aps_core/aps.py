"""Algorithm 1 of the paper: test-time anchored posterior sampling (APS).

Names follow the paper: ``phi`` optimised logits, ``x_bar`` expected code, ``x_tilde`` its
straight-through quantisation, ``x_hat`` decoded picture, ``kappa`` token confidence.
Shapes: B samples, L tokens, K codes, D code dimension, N masked tokens of all samples together.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor

from aps_core.errors import SamplingCancelled
from aps_core.sampling.anchors import anchor_order, token_score
from aps_core.sampling.config import APSConfig
from aps_core.sampling.expectation import expected_code
from aps_core.sampling.inner_loop import InnerLoop, Place
from aps_core.sampling.inner_watch import InnerWatch
from aps_core.sampling.random_ops import gumbel_perturbed
from aps_core.sampling.schedule import mask_fraction, masked_counts
from aps_core.types import (
    MASK,
    Grid,
    InnerHook,
    Objective,
    Prior,
    SamplerState,
    StepHook,
    StepInfo,
    Tokenizer,
)


@dataclass(frozen=True)
class Sample:
    """Outcome of a run: codes (B, L) and decoded pictures (B, 3, H, W)."""

    z_BL: Tensor
    x_BCHW: Tensor
    misfit_B: Tensor


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
    on_inner: InnerHook | None = None,
    resume: SamplerState | None = None,
    z_BL: Tensor | None = None,
    graph: bool | None = None,
) -> Sample:
    """Draws ``batch`` posterior samples on a token ``grid`` by Algorithm 1.

    Every random draw comes from ``generator``. A run resumed from a :class:`SamplerState` gives the
    same tokens as one that was never interrupted. ``z_BL`` may hold decided tokens, as many in
    every sample, which are kept; the schedule runs over the others. ``graph`` fixes the inner
    steps' shapes and, on CUDA, replays them as a CUDA graph (default: on CUDA).

    Raises:
        SamplingCancelled: ``on_step`` or ``on_inner`` returned False.
        SamplingDiverged: the loss is not finite.
    """
    num_tokens = grid[0] * grid[1]
    z_BL = torch.full((batch, num_tokens), MASK) if z_BL is None else z_BL  # line 4: all masked
    z_BL, first, hidden = z_BL.to(generator.device), 0, int((z_BL == MASK).sum(1).amax())
    if resume is not None:
        z_BL, first = resume.z_BL.to(generator.device), resume.step
        generator.set_state(resume.generator_state)
    temperature = config.temperature if config.temperature is not None else float(batch > 1)
    evaluate = partial(
        quantized_expectation, tokenizer=prior.tokenizer, objective=objective, grid=grid
    )
    inner = InnerLoop(evaluate, prior.tokenizer.codebook_KD, config, objective.noise_floor, graph)
    for step, left in list(enumerate(masked_counts(hidden, config.steps)))[first:]:  # line 5
        started = time.perf_counter()
        before, after = mask_fraction(step / config.steps), mask_fraction((step + 1) / config.steps)
        keep = (before - after) / before  # (alpha_s - alpha_t) / (1 - alpha_t)
        with torch.no_grad():
            fraction = before * hidden / num_tokens
            # line 6
            prior_BLK = prior.logits(
                z_BL,
                grid=grid,
                mask_fraction=fraction,
                condition=condition,
                guidance_scale=config.guidance_scale,
            )
        masked_BL = z_BL == MASK
        prior_NK = prior_BLK[masked_BL]
        prior_seconds = time.perf_counter() - started
        # lines 7-15: M Adam steps on lines 8-13
        watch = InnerWatch(on_inner, step + 1, config.steps)
        fit = inner.run(gumbel_perturbed(prior_NK, temperature, generator), z_BL, keep, watch)
        z_next_BL, kappa_BL = anchored_remasking(
            fit.phi_NK, prior_NK, z_BL, prior.tokenizer, config, left, keep, generator
        )
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


def quantized_expectation(
    phi_NK: Tensor, place: Place, tokenizer: Tokenizer, objective: Objective, grid: Grid
) -> tuple[Tensor, Tensor, Tensor]:
    """Lines 8-13: decodes the quantised expectation of the masked tokens' logits and measures the
    picture.

    ``place`` puts their embeddings (N, D) among those of the decided tokens, which stay clamped to
    their code, so only masked tokens carry gradients. Returns loss (B,), misfit (B,) and picture
    (B, 3, H, W).
    """
    x_bar_ND = expected_code(phi_NK, tokenizer.codebook_KD)  # lines 8-9: softmax(phi) @ codebook
    x_ND = tokenizer.quantize(x_bar_ND.detach())[1]  # line 10
    x_tilde_ND = x_bar_ND + (x_ND - x_bar_ND).detach()  # line 11: straight-through
    x_hat_BCHW = tokenizer.decode(place(x_tilde_ND), grid)  # line 12
    return *objective(x_hat_BCHW), x_hat_BCHW  # line 13


def anchored_remasking(
    phi_NK: Tensor,
    prior_NK: Tensor,
    z_BL: Tensor,
    tokenizer: Tokenizer,
    config: APSConfig,
    left: int,
    keep: float,
    generator: Generator,
) -> tuple[Tensor, Tensor]:
    """Lines 16-21: keeps the most trusted optimised tokens (the anchors), re-masks the rest until
    ``left`` stay masked.

    Returns the next state (B, L) and the score of every masked token (B, L), -inf where decided.
    """
    masked_BL = z_BL == MASK
    x_bar_ND = torch.softmax(phi_NK, dim=-1) @ tokenizer.codebook_KD  # lines 16-17
    x_N = tokenizer.quantize(x_bar_ND)[0]  # line 18
    trusted_NK = {"posterior": phi_NK, "prior": prior_NK, "random": phi_NK}[config.remasking]
    kappa_N = token_score(trusted_NK, x_N, config.anchor_score)  # line 19
    kappa_BL = kappa_N.new_full(z_BL.shape, -torch.inf).masked_scatter(masked_BL, kappa_N)
    wanted_B = (masked_BL.sum(1) - left).clamp(min=0)
    rank_BL = (
        anchor_order(kappa_BL, masked_BL, config, generator)
        .argsort(dim=1, descending=True, stable=True)
        .argsort(dim=1, stable=True)
    )
    # line 20: tau_t is the score of rank `wanted`
    anchors_BL = masked_BL & (rank_BL < wanted_B[:, None])
    if config.state_update == "bernoulli" and left > 0:
        anchors_BL &= torch.rand(z_BL.shape, generator=generator, device=z_BL.device) < keep
    x_BL = z_BL.masked_scatter(masked_BL, x_N)
    return torch.where(anchors_BL, x_BL, z_BL), kappa_BL  # line 21
