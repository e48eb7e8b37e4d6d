"""Interface between samplers and the driver: the problem, the result of a step, and the protocol.

Shapes: see :mod:`aps_core.types`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from aps_core._lazy import lazy_import
from aps_core.numerics.likelihood import Likelihood, MeasurementLikelihood
from aps_core.numerics.steepest_descent import steepest_step
from aps_core.sampling.inner_watch import InnerWatch
from aps_core.sampling.views import View, denoised_in
from aps_core.types import (
    Denoised,
    DenoisingPrior,
    Grid,
    InnerHook,
    NoisePrior,
    Objective,
    Prior,
    SamplerState,
)

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor
else:
    torch = lazy_import("torch")


@dataclass(kw_only=True)
class Problem:
    """Input of a sampler: prior, objective, token grid and random generator."""

    prior: Prior
    objective: Objective
    grid: Grid
    generator: Generator
    condition: str = ""
    on_inner: InnerHook | None = None
    graph: bool | None = None
    """Whether inner loops use fixed shapes and, on CUDA, replay a CUDA graph. None: only on
    CUDA.
    """
    prior_seconds: float = 0.0
    """Wall time of the prior's forward passes in this reverse step."""

    @cached_property
    def whitened(self) -> Objective:
        """The objective, accounting for coloured noise."""
        if isinstance(self.objective, MeasurementLikelihood):
            return self.objective.whitened()
        return self.objective

    def logits(self, z_BL: Tensor, mask_fraction: float, guidance_scale: float) -> Tensor:
        """The prior's logits (B, L, K) given the decided codes; ``mask_fraction`` in [0, 1]."""
        started = _clock(z_BL.device)
        logits_BLK = self.prior.logits(
            z_BL,
            grid=self.grid,
            mask_fraction=mask_fraction,
            condition=self.condition,
            guidance_scale=guidance_scale,
        )
        self.prior_seconds += _clock(logits_BLK.device) - started
        return logits_BLK

    def denoised(self, estimate_BCHW: Tensor, objective: Objective, seen: View) -> Denoised:
        """Prediction of a denoising prior from an estimate and its steepest-descent step on the
        objective, in the view ``seen``.
        """
        assert isinstance(self.prior, DenoisingPrior)
        pulled_BCHW = estimate_BCHW
        if isinstance(objective, Likelihood):
            pulled_BCHW = steepest_step(objective, estimate_BCHW)
        started = _clock(estimate_BCHW.device)
        denoised = denoised_in(self.prior, seen, estimate_BCHW, pulled_BCHW)
        self.prior_seconds += _clock(estimate_BCHW.device) - started
        return denoised

    def without_noise(self, noisy_BCHW: Tensor, sigma: float, seen: View) -> tuple[Tensor, Tensor]:
        """Mean and deviation of a prior that removes noise, in a view."""
        assert isinstance(self.prior, NoisePrior)
        started = _clock(noisy_BCHW.device)
        mean_BChw, deviation_Bhw = self.prior.without_noise(seen.apply(noisy_BCHW), sigma)
        self.prior_seconds += _clock(noisy_BCHW.device) - started
        return seen.undo(mean_BChw), seen.undo(deviation_Bhw)

    def decode(self, z_BL: Tensor) -> Tensor:
        """Complete codes (B, L) to pictures (B, 3, H, W)."""
        tokenizer = self.prior.tokenizer
        return tokenizer.decode(tokenizer.codebook_KD[z_BL], self.grid)

    def uniform(self, shape: torch.Size) -> Tensor:
        """Random numbers in [0, 1) from the run's generator."""
        return torch.rand(shape, generator=self.generator, device=self.generator.device)

    def watch(self, step: int, total: int) -> InnerWatch:
        """Reports the inner iterations of reverse step ``step`` (from 0) of ``total``."""
        return InnerWatch(self.on_inner, step + 1, total)

    def watch_beside(self, step: int, total: int, iteration: int, inner_steps: int) -> InnerWatch:
        """Reports work before or after the inner iterations, so that it can be cancelled; shows
        ``iteration`` of ``inner_steps`` throughout.
        """
        hook = self.on_inner
        if hook is None:
            return self.watch(step, total)
        return InnerWatch(
            lambda info: hook(replace(info, iteration=iteration, inner_steps=inner_steps)),
            step + 1,
            total,
        )


def _clock(device: torch.device) -> float:
    """Wall time in seconds after a CUDA device has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


@dataclass(frozen=True, kw_only=True)
class Step:
    """Result of one reverse step."""

    z_BL: Tensor
    """The next tokens: codes, or ``MASK``."""
    confidence_BL: Tensor
    """Score of every token that was masked; see :class:`aps_core.types.StepInfo`."""
    clean_BL: Tensor | None = None
    """The step's estimate as complete codes. The driver decodes it for the step hook if
    ``x_hat_BCHW`` is None.
    """
    x_hat_BCHW: Tensor | None = None
    """The step's estimate as a picture, if the sampler decoded one."""
    misfit: float = 0.0
    """Data misfit of ``x_hat_BCHW``, mean over the batch."""
    loss_curve: list[float] = field(default_factory=list)
    """Loss of every decoder evaluation, mean over the batch."""
    anchors_BL: Tensor | None = None
    """True for tokens decided by this step. None means all tokens that are no longer masked."""
    carried: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensors the next step needs besides the tokens. They are part of its state and of
    checkpoints.
    """


class Sampler(Protocol):
    """Members of a sampler that :func:`aps_core.sampling.driver.sample` uses;
    :class:`aps_core.samplers.base.SamplerSpec` documents them.
    """

    @property
    def type(self) -> str:
        """Name of the sampler."""
        ...

    @property
    def steps(self) -> int:
        """Reverse steps T."""
        ...

    @property
    def keeps_decided(self) -> bool:
        """Whether tokens decided before the first step stay unchanged."""
        ...

    def init(self, problem: Problem, z_BL: Tensor, /) -> Any:
        """Creates the state shared by all steps."""
        ...

    def step(self, problem: Problem, memory: Any, state: SamplerState, /) -> Step:
        """Runs one reverse step."""
        ...

    def decoded(self, problem: Problem, state: SamplerState, /) -> Tensor:
        """The pictures (B, 3, H, W) of the last step."""
        ...

    def deviation(self, state: SamplerState, /) -> Tensor | None:
        """Standard deviation (B, H, W) of the error expected of their brightness, if known."""
        ...

    def finish(self, problem: Problem, x_BCHW: Tensor, /) -> Tensor:
        """The result, given the pictures of the last step."""
        ...
