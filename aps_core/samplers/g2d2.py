"""G2D2: gradient-guided discrete diffusion.

Murata et al., "G2D2: Gradient-Guided Discrete Diffusion for Inverse Problem Solving" (2024,
arXiv:2410.14710). Each reverse step optimises a factorised distribution q over all tokens. The loss
is the objective of a relaxed (Gumbel-softmax) sample plus the KL divergence from q to the prior's
prediction. Then all tokens are sampled from q and masked again (star-shaped noising), so that
earlier decisions can be revised.

A masked prior makes no prediction for a token that is already decided. There, this implementation
uses a mixture: the decided code, or with probability ``revision`` the prior's output at that
position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec, SamplingDiverged
from aps_core.samplers.base import REVERSE_STEPS, SamplerSpec
from aps_core.sampling.inner_watch import UNWATCHED, InnerWatch
from aps_core.sampling.problem import Problem, Step
from aps_core.sampling.random_ops import categorical, gumbel_perturbed
from aps_core.sampling.schedule import mask_fraction, masked_counts
from aps_core.types import MASK, Grid, Objective, SamplerState, Tokenizer

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

else:
    torch = lazy_import("torch")


class G2D2Config(SamplerSpec):
    """G2D2: optimises a distribution over all tokens in every step, then samples and masks all of
    them again.

    Defaults are the paper's for super-resolution. Learning rate and KL weight decay by the given
    number of decades over the run, symmetric in log scale around the configured value. The paper's
    KL weight is for an unsquared L2 norm; a sum over the measurement needs a larger one.
    """

    type: Literal["g2d2"] = "g2d2"
    steps: int = Field(100, ge=1, le=1024, description=REVERSE_STEPS)
    inner_steps: int = Field(
        30, ge=1, le=5000, description="Corrections in every round (RAdam steps on the logits)."
    )
    learning_rate: float = Field(
        10.0,
        gt=0,
        le=1000,
        description=(
            "Size of a correction halfway through the run (RAdam's learning rate on the logits)."
        ),
    )
    learning_rate_decades: float = Field(
        2.0, ge=0, le=6, description="Decades by which the learning rate decays over the run."
    )
    kl_weight: float = Field(
        3e-4,
        ge=0,
        le=1e6,
        description="Pull towards the prior halfway through the run (weight of the KL divergence).",
    )
    kl_decades: float = Field(
        2.0, ge=0, le=6, description="Decades by which the KL weight decays over the run."
    )
    forget: float = Field(
        0.3,
        ge=0,
        le=1,
        description=(
            "Share of the prior's log-probabilities in the initial logits; the rest comes from the"
            " previous step."
        ),
    )
    gumbel_temperature: float = Field(
        1.0, gt=0, le=10, description="Temperature of the relaxed (Gumbel-softmax) sample."
    )
    revision: float = Field(
        0.5, gt=0, le=1, description="Probability with which the prior may revise a decided token."
    )
    guidance_scale: float = Field(
        0.0,
        ge=0,
        le=20,
        description="How strongly the prompt is followed (classifier-free guidance).",
    )

    def step(self, problem: Problem, memory: Any, state: SamplerState) -> Step:
        """Fits the distribution, samples all tokens from it and masks as many as the schedule
        requires.

        The logits of q are carried from step to step.

        Raises:
            InvalidSpec: the state belongs to another sampler.
            SamplingDiverged: the loss is not finite.
        """
        z_BL, done = state.z_BL, state.step
        left = masked_counts(z_BL.shape[1], self.steps)[done]
        logits_BLK = problem.logits(z_BL, mask_fraction(done / self.steps), self.guidance_scale)
        log_p_BLK = reconsidered(logits_BLK, z_BL, self.revision)
        start_BLK = log_p_BLK
        if done:
            if (log_q_BLK := state.carried.get("log_q_BLK")) is None:
                raise InvalidSpec("G2D2 cannot resume from the state of another sampler.")
            mixed_BLK = self.forget * log_p_BLK + (1 - self.forget) * log_q_BLK
            start_BLK = torch.log_softmax(mixed_BLK, dim=-1)
        fit = variational_fit(
            start_BLK,
            log_p_BLK,
            problem.prior.tokenizer,
            problem.objective,
            self,
            problem.grid,
            0.5 - done / max(1, self.steps - 1),  # decays from +0.5 to -0.5 of the decades
            problem.generator,
            problem.watch(done, self.steps),
        )
        x_BL = categorical(fit.log_q_BLK.exp().flatten(0, 1), problem.generator).view_as(z_BL)
        order_BL = problem.uniform(z_BL.shape).argsort(1).argsort(1)
        return Step(
            z_BL=torch.where(order_BL < left, MASK, x_BL),  # star-shaped noising masks x, not z
            confidence_BL=fit.log_q_BLK.gather(-1, x_BL[..., None])[..., 0],
            x_hat_BCHW=fit.x_hat_BCHW,
            misfit=fit.misfit,
            loss_curve=fit.loss_curve,
            carried={"log_q_BLK": fit.log_q_BLK},
        )

    @property
    def decodes(self) -> int:
        """One per RAdam step."""
        return self.inner_steps

    @classmethod
    def for_decodes(cls, decodes: int) -> dict[str, Any]:
        """One RAdam step per decode, at least one."""
        return {"inner_steps": max(1, decodes)}


@dataclass(frozen=True)
class VariationalFit:
    """Result of one inner optimisation."""

    log_q_BLK: Tensor
    x_hat_BCHW: Tensor
    loss_curve: list[float]
    misfit: float


def reconsidered(logits_BLK: Tensor, z_BL: Tensor, revision: float) -> Tensor:
    """Log-probabilities (B, L, K): the prior's for masked tokens; elsewhere a mixture of the
    decided code and the prior's.
    """
    p_BLK = torch.softmax(logits_BLK, dim=-1)
    decided_BLK = torch.zeros_like(p_BLK).scatter(-1, z_BL.clamp(min=0)[..., None], 1.0)
    share_BL1 = torch.where(z_BL == MASK, 1.0, revision)[..., None]
    return (
        (share_BL1 * p_BLK + (1 - share_BL1) * decided_BLK)
        .clamp(min=torch.finfo(p_BLK.dtype).tiny)
        .log()
    )


def variational_fit(
    start_BLK: Tensor,
    log_p_BLK: Tensor,
    tokenizer: Tokenizer,
    objective: Objective,
    config: G2D2Config,
    grid: Grid,
    above: float,
    generator: Generator,
    watch: InnerWatch = UNWATCHED,
) -> VariationalFit:
    """Optimises the logits of q from ``start``: objective of a relaxed sample plus weighted KL(q ||
    p).

    ``above`` in [-0.5, 0.5] is the position in the decay of learning rate and KL weight, as a
    fraction of their decades.

    Raises:
        SamplingCancelled: the hook of ``watch`` returned False.
        SamplingDiverged: the loss is not finite.
    """
    from aps_core.sampling.expectation import expected_code

    kl_weight = config.kl_weight * 10 ** (above * config.kl_decades)
    phi_BLK = start_BLK.clone().requires_grad_()
    radam = torch.optim.RAdam(
        [phi_BLK], lr=config.learning_rate * 10 ** (above * config.learning_rate_decades)
    )
    codebook_KD, losses = tokenizer.codebook_KD, []
    for iteration in range(1, config.inner_steps + 1):
        with torch.enable_grad():
            perturbed_BLK = gumbel_perturbed(phi_BLK, 1.0, generator) / config.gumbel_temperature
            relaxed_MD = expected_code(perturbed_BLK.flatten(0, 1), codebook_KD)  # not quantised
            x_hat_BCHW = tokenizer.decode(relaxed_MD.unflatten(0, phi_BLK.shape[:2]), grid)
            loss_B, misfit_B = objective(x_hat_BCHW)
            (phi_BLK.grad,) = torch.autograd.grad(loss_B.sum(), phi_BLK)
        divergence, gradient_BLK = divergence_with_gradient(phi_BLK.detach(), log_p_BLK)
        phi_BLK.grad.add_(gradient_BLK, alpha=kl_weight)
        losses.append(loss_B.detach().sum() + kl_weight * divergence)
        radam.step()
        watch(iteration, config.inner_steps, losses[-1] / len(start_BLK), x_hat_BCHW.detach())
    curve = (torch.stack(losses) / len(start_BLK)).tolist()
    if not math.isfinite(curve[-1]):
        raise SamplingDiverged(
            f"The loss became {curve[-1]} after {len(curve)} inner steps; lower the learning rate"
            f" ({config.learning_rate})."
        )
    return VariationalFit(
        log_q_BLK=torch.log_softmax(phi_BLK.detach(), dim=-1),
        x_hat_BCHW=x_hat_BCHW.detach(),
        loss_curve=curve,
        misfit=float(misfit_B.mean()),
    )


def divergence_with_gradient(phi_BLK: Tensor, log_p_BLK: Tensor) -> tuple[Tensor, Tensor]:
    """KL(softmax(phi) || p), summed over rows, and its gradient ``q (log q - log p - KL of the
    row)``.
    """
    log_q_BLK = torch.log_softmax(phi_BLK, dim=-1)
    q_BLK, ratio_BLK = log_q_BLK.exp(), log_q_BLK.sub_(log_p_BLK)
    divergence_BL1 = (q_BLK * ratio_BLK).sum(-1, keepdim=True)
    return divergence_BL1.sum(), q_BLK.mul_(ratio_BLK.sub_(divergence_BL1))
