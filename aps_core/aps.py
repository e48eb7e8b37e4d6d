"""Algorithm 1 of the paper: test-time anchored posterior sampling (APS).

Names follow the paper: ``phi`` optimised logits, ``x_bar`` expected code, ``x_tilde`` its
straight-through quantisation, ``x_hat`` decoded picture, ``kappa`` token confidence.
Shapes: B samples, L tokens, K codes, D code dimension, N masked tokens of all samples together.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from aps_core.sampling.anchors import anchor_order, token_score
from aps_core.sampling.driver import sample
from aps_core.sampling.expectation import expected_code
from aps_core.sampling.inner_loop import InnerLoop, Place
from aps_core.sampling.problem import Problem, Step
from aps_core.sampling.random_ops import gumbel_perturbed
from aps_core.sampling.schedule import mask_fraction, masked_counts
from aps_core.sampling.settings import AnchorSettings, APSSettings
from aps_core.types import MASK, Grid, Objective, Prior, Sample, SamplerState, Tokenizer


def sample_aps(
    prior: Prior,
    objective: Objective,
    config: APSSettings,
    *,
    grid: Grid,
    generator: Generator,
    batch: int = 1,
    **options: Any,
) -> Sample:
    """Draws ``batch`` posterior samples on a token ``grid`` by Algorithm 1.

    Args:
        prior: the masked diffusion prior p(z).
        objective: the loss of a decoded picture against the measurement.
        config: T reverse steps, M Adam steps, learning rate and variants: an
            :class:`~aps_core.samplers.aps.APSConfig`, whose defaults are the paper's.
        grid: rows and columns (gh, gw) of the token grid; L = gh * gw.
        generator: source of every random number, on the device of the computation.
        batch: number of samples B; unused if ``options`` contains ``z_BL``.
        options: further arguments of :func:`aps_core.sampling.driver.sample`, which runs every
            sampler.

    Raises:
        SamplingCancelled: ``on_step`` or ``on_inner`` returned False.
        SamplingDiverged: the loss is not finite.
    """
    if options.get("z_BL") is None:
        options["z_BL"] = torch.full((batch, grid[0] * grid[1]), MASK)  # line 4: all masked
    # lines 5 and 22: T times `step`; lines 23-24: decodes the last tokens
    return sample(prior, objective, config, grid=grid, generator=generator, **options)


class Memory(NamedTuple):
    """State shared by all reverse steps of one run."""

    hidden: int
    """Largest number of tokens, over the samples, that are masked at the start."""
    inner: InnerLoop


def init(config: APSSettings, problem: Problem, z_BL: Tensor) -> Memory:
    """Counts the masked tokens of ``z`` and prepares the inner loop of the whole run."""
    tokenizer, objective = problem.prior.tokenizer, problem.objective
    evaluate = partial(
        quantized_expectation, tokenizer=tokenizer, objective=objective, grid=problem.grid
    )
    floor, graph = objective.noise_floor, problem.graph
    inner = InnerLoop(evaluate, tokenizer.codebook_KD, config, floor, graph)
    return Memory(int((z_BL == MASK).sum(1).amax()), inner)


def step(config: APSSettings, problem: Problem, memory: Memory, state: SamplerState) -> Step:
    """Lines 6-21, once."""
    z_BL, generator, done = state.z_BL, problem.generator, state.step
    left = masked_counts(memory.hidden, config.steps)[done]
    before, after = mask_fraction(done / config.steps), mask_fraction((done + 1) / config.steps)
    keep = (before - after) / before  # (alpha_s - alpha_t) / (1 - alpha_t)
    fraction = before * memory.hidden / z_BL.shape[1]
    prior_BLK = problem.logits(z_BL, fraction, config.guidance_scale)  # line 6
    prior_NK = prior_BLK[z_BL == MASK]
    several = float(len(z_BL) > 1)
    temperature = several if config.temperature is None else config.temperature
    start_NK = gumbel_perturbed(prior_NK, temperature, generator)
    watch = problem.watch(done, config.steps)
    fit = memory.inner.run(start_NK, z_BL, keep, watch)  # lines 7, 14-15: M Adam steps on 8-13
    z_next_BL, kappa_BL = anchored_remasking(
        fit.phi_NK, prior_NK, z_BL, problem.prior.tokenizer, config, left, keep, generator
    )
    return Step(
        z_BL=z_next_BL,
        confidence_BL=kappa_BL,
        x_hat_BCHW=fit.x_hat_BCHW,
        misfit=fit.misfit,
        loss_curve=fit.loss_curve,
    )


def quantized_expectation(
    phi_NK: Tensor, place: Place, tokenizer: Tokenizer, objective: Objective, grid: Grid
) -> tuple[Tensor, Tensor, Tensor]:
    """Lines 8-13: decodes the quantised expected codes and evaluates the loss of the picture.

    Args:
        phi_NK: logits of the masked tokens.
        place: inserts the embeddings (N, D) of the masked tokens between those of the decided
            tokens. Decided tokens keep their code, so gradients flow only to masked tokens.
        tokenizer: codebook, quantiser and decoder.
        objective: loss of a decoded picture.
        grid: rows and columns of the token grid.

    Returns:
        Loss (B,), misfit (B,) and picture (B, 3, H, W).
    """
    x_bar_ND = expected_code(phi_NK, tokenizer.codebook_KD)  # lines 8-9: softmax(phi) @ codebook
    return quantized_loss(x_bar_ND, place, tokenizer, objective, grid)


def quantized_loss(
    x_bar_ND: Tensor, place: Place, tokenizer: Tokenizer, objective: Objective, grid: Grid
) -> tuple[Tensor, Tensor, Tensor]:
    """Lines 10-13, from the expected codes (N, D); the rest as :func:`quantized_expectation`."""
    x_ND = tokenizer.quantize(x_bar_ND.detach())[1]  # line 10
    x_tilde_ND = x_bar_ND + (x_ND - x_bar_ND).detach()  # line 11: straight-through
    x_hat_BCHW = tokenizer.decode(place(x_tilde_ND), grid)  # line 12
    return *objective(x_hat_BCHW), x_hat_BCHW  # line 13


def anchored_remasking(
    phi_NK: Tensor,
    prior_NK: Tensor,
    z_BL: Tensor,
    tokenizer: Tokenizer,
    config: AnchorSettings,
    left: int,
    keep: float,
    generator: Generator,
) -> tuple[Tensor, Tensor]:
    """Lines 16-21: keeps the tokens of highest confidence (the anchors) and masks the others again.

    Args:
        phi_NK: optimised logits of the masked tokens.
        prior_NK: the prior's logits of the same tokens.
        z_BL: current tokens, ``MASK`` where undecided.
        tokenizer: codebook and quantiser.
        config: confidence score, order of the anchors and update rule.
        left: number of tokens per sample that stay masked.
        keep: probability in (0, 1] that an anchor is kept by the 'bernoulli' update.
        generator: source of random numbers.

    Returns:
        The next tokens (B, L), and the score (B, L) of every masked token, -inf where decided.
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
