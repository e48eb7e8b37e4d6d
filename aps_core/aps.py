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

from aps_core.anchors import gumbel_perturbed, token_score
from aps_core.config import APSConfig
from aps_core.errors import SamplingCancelled
from aps_core.expectation import expected_code
from aps_core.inner import InnerLoop
from aps_core.regularisers import regularisers
from aps_core.schedule import mask_fraction, masked_counts
from aps_core.types import MASK, Grid, Objective, Prior, SamplerState, StepHook, StepInfo, Tokenizer


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
    resume: SamplerState | None = None,
    graph: bool | None = None,
) -> Sample:
    """Draws ``batch`` posterior samples on a token ``grid`` by Algorithm 1.

    Every random draw comes from ``generator``. A run resumed from a :class:`SamplerState` gives the
    same tokens as one that was never interrupted. ``graph`` replays inner steps as a CUDA graph (default: on CUDA).

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
    fixed = generator.device.type == "cuda" if graph is None else graph
    inner = InnerLoop(InnerStep(prior.tokenizer, objective, config, grid, fixed), config, objective.noise_floor)
    for step, left in list(enumerate(masked_counts(num_tokens, config.steps)))[first:]:  # line 5
        started = time.perf_counter()
        before, after = mask_fraction(step / config.steps), mask_fraction((step + 1) / config.steps)
        keep = (before - after) / before  # (alpha_s - alpha_t) / (1 - alpha_t)
        with torch.no_grad():
            prior_BLK = prior.logits(z_BL, grid=grid, mask_fraction=before, condition=condition, guidance_scale=config.guidance_scale)  # line 6
        masked_BL = z_BL == MASK
        prior_NK = prior_BLK[masked_BL]
        prior_seconds = time.perf_counter() - started
        fit = inner.run(gumbel_perturbed(prior_NK, temperature, generator), z_BL, keep)  # lines 7-15
        z_next_BL, kappa_BL = anchored_remasking(fit.phi_NK, prior_NK, z_BL, prior.tokenizer, config, left, keep, generator)
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


class InnerStep:
    """Lines 8-14: one Adam step on the logits of the masked tokens, so that the decoded expectation agrees with the measurement.

    Decided tokens are clamped to their code. A *fixed* step keeps the shape and address of every tensor
    for the whole run, as a CUDA graph needs: it carries the rows of all M = B * L tokens, those of decided
    tokens without effect. Otherwise it holds the N masked rows only.
    """

    adam: torch.optim.Adam
    loss: Tensor
    misfit_B: Tensor
    x_hat_BCHW: Tensor

    def __init__(self, tokenizer: Tokenizer, objective: Objective, config: APSConfig, grid: Grid, fixed: bool) -> None:
        self.tokenizer, self.objective, self.config, self.grid, self.fixed = tokenizer, objective, config, grid, fixed
        self.tensors: dict[str, Tensor] = {}

    def begin(self, start_NK: Tensor, z_BL: Tensor, keep: float) -> None:
        """Starts a reverse step from the logits ``start`` of the masked tokens, with Adam afresh."""
        masked_M = (z_BL == MASK).flatten()
        self.rows_N = masked_M.nonzero()[:, 0]
        phi = start_NK.new_zeros(len(masked_M), start_NK.shape[1]).index_copy(0, self.rows_N, start_NK) if self.fixed else start_NK.clone()
        fresh = {
            "phi": phi,
            "decided": self.tokenizer.codebook_KD[z_BL.clamp(min=0)],
            "masked": masked_M,
            "pull": phi.new_tensor(self.config.prior_weight * keep),
        }
        if self.config.prior_weight:
            fresh["prior"] = torch.softmax(phi, dim=-1)
        if self.fixed and self.tensors:
            for name, value in fresh.items():
                self.tensors[name].data.copy_(value)
            for value in self.adam.state[self.tensors["phi"]].values():
                value.zero_()
        else:
            self.tensors = fresh
            self.adam = torch.optim.Adam([phi.requires_grad_()], lr=self.config.learning_rate, fused=True, capturable=self.fixed)

    def evaluate(self) -> Tensor:
        """Lines 8-13: the loss at the current logits; leaves ``loss``, ``misfit_B`` and ``x_hat_BCHW`` behind."""
        phi, decided_BLD = self.tensors["phi"], self.tensors["decided"]
        x_bar = expected_code(phi, self.tokenizer.codebook_KD)  # lines 8-9
        x = self.tokenizer.quantize(x_bar.detach())[1]  # line 10
        x_tilde = x_bar + (x - x_bar).detach()  # line 11: straight-through
        decided_MD = decided_BLD.flatten(0, 1)
        if self.fixed:
            x_MD = torch.where(self.tensors["masked"][:, None], x_tilde, decided_MD)
        else:
            x_MD = decided_MD.index_copy(0, self.rows_N, x_tilde)
        x_hat_BCHW = self.tokenizer.decode(x_MD.view_as(decided_BLD), self.grid)  # line 12
        loss_B, self.misfit_B = self.objective(x_hat_BCHW)  # line 13
        loss = loss_B.sum()
        if self.config.prior_weight or self.config.entropy_weight:
            counted = self.tensors["masked"] if self.fixed else self.tensors["masked"][self.rows_N]
            loss = loss + regularisers(phi, self.tensors.get("prior"), self.tensors["pull"], self.config.entropy_weight, counted)
        self.loss, self.x_hat_BCHW = loss.detach(), x_hat_BCHW.detach()
        return loss

    def __call__(self) -> None:
        """Lines 8-14."""
        phi = self.tensors["phi"]
        (phi.grad,) = torch.autograd.grad(self.evaluate(), phi)
        self.adam.step()  # line 14

    @property
    def phi_NK(self) -> Tensor:
        """The masked tokens' logits, as they are now."""
        phi = self.tensors["phi"].detach()
        return phi[self.rows_N] if self.fixed else phi


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
    wanted_B = (masked_BL.sum(1) - left).clamp(min=0)
    rank_BL = kappa_BL.argsort(dim=1, descending=True, stable=True).argsort(dim=1, stable=True)
    anchors_BL = masked_BL & (rank_BL < wanted_B[:, None])  # line 20: tau_t is the score of rank `wanted`
    if config.state_update == "bernoulli" and left > 0:
        anchors_BL &= torch.rand(z_BL.shape, generator=generator, device=z_BL.device) < keep
    x_BL = z_BL.masked_scatter(masked_BL, x_N)
    return torch.where(anchors_BL, x_BL, z_BL), kappa_BL  # line 21
