"""Runs any sampler: start or resume, reverse steps, timing, hooks, cancellation, final decode."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from aps_core.errors import InvalidSpec, SamplingCancelled
from aps_core.imaging.steepest_descent import steepest_step
from aps_core.likelihood import Likelihood, MeasurementLikelihood
from aps_core.sampling.inner_watch import InnerWatch
from aps_core.sampling.views import View, denoised_in
from aps_core.types import (
    MASK,
    Denoised,
    DenoisingPrior,
    Grid,
    InnerHook,
    NoisePrior,
    Objective,
    Prior,
    Sample,
    SamplerState,
    StepHook,
    StepInfo,
)

if TYPE_CHECKING:
    from aps_core.samplers.base import SamplerSpec, Step


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
        """The objective with noise that is not white taken for what it is."""
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
        """The answer of a denoising prior to an estimate, and to where an objective pulls it, in a
        view.
        """
        assert isinstance(self.prior, DenoisingPrior)
        pulled_BCHW = estimate_BCHW
        if isinstance(objective, Likelihood):
            pulled_BCHW = steepest_step(objective, estimate_BCHW)
        started = _clock(estimate_BCHW.device)
        answer = denoised_in(self.prior, seen, estimate_BCHW, pulled_BCHW)
        self.prior_seconds += _clock(estimate_BCHW.device) - started
        return answer

    def without_noise(self, noisy_BCHW: Tensor, sigma: float, seen: View) -> tuple[Tensor, Tensor]:
        """The answer of a prior of noise, in a view."""
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
        """For long work before or after the inner iterations: it can be canceled, and reports
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


class Unmeasured:
    """Objective of a run without a measurement: zero for every picture."""

    noise_floor = 0.0
    temperature = 0.0

    def __call__(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Two tensors of zeros (B,)."""
        zero_B = x_BCHW.new_zeros(len(x_BCHW))
        return zero_B, zero_B


def sample(
    prior: Prior,
    objective: Objective | None,
    sampler: SamplerSpec,
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
    """Draws ``batch`` samples on a token ``grid`` with ``sampler``.

    A run resumed from a :class:`SamplerState` gives the same tokens as an uninterrupted one.

    Args:
        prior: the masked diffusion prior.
        objective: loss of a decoded picture; None samples without a measurement, with misfit 0.
        sampler: the method and its settings.
        grid: rows and columns (gh, gw) of the token grid; L = gh * gw.
        generator: source of every random number, on the device of the computation.
        batch: number of samples B; unused if ``z_BL`` is given.
        condition: text prompt of the prior; may be empty.
        on_step: called after every reverse step; returning False cancels the run.
        on_inner: called between inner iterations; returning False cancels the run.
        resume: state after a finished step of the same run.
        z_BL: initial tokens. Decided tokens are kept; every sample must have the same number.
        graph: fixes the shapes of inner steps and, on CUDA, replays them as a CUDA graph. Default:
            on CUDA only.

    Raises:
        InvalidSpec: ``z_BL`` is given, but ``sampler`` would not keep decided tokens.
        SamplingCancelled: ``on_step`` or ``on_inner`` returned False.
        SamplingDiverged: the loss is not finite.
    """
    if z_BL is None:
        z_BL = torch.full((batch, grid[0] * grid[1]), MASK)
    elif not sampler.keeps_decided:
        raise InvalidSpec(f"The sampler '{sampler.type}' cannot keep decided tokens.")
    z_BL = z_BL.to(generator.device)
    problem = Problem(
        prior=prior,
        objective=objective if objective is not None else Unmeasured(),
        grid=grid,
        generator=generator,
        condition=condition,
        on_inner=on_inner,
        graph=graph,
    )
    state = SamplerState(0, z_BL, generator.get_state())
    if resume is not None:
        generator.set_state(resume.generator_state)
        carried = {name: tensor.to(z_BL.device) for name, tensor in resume.carried.items()}
        state = SamplerState(
            resume.step, resume.z_BL.to(z_BL.device), resume.generator_state, carried
        )
    with torch.no_grad():
        memory = sampler.init(problem, z_BL)
        while state.step < sampler.steps:
            before, started = state, time.perf_counter()
            problem.prior_seconds = 0.0
            step = sampler.step(problem, memory, state)
            state = SamplerState(
                before.step + 1, step.z_BL, generator.get_state(), dict(step.carried)
            )
            if (
                on_step is not None
                and on_step(_info(problem, sampler, before, state, step, started)) is False
            ):
                raise SamplingCancelled(
                    f"Stopped after reverse step {state.step} of {sampler.steps}."
                )
        x_BCHW = sampler.decoded(problem, state)
        finished_BCHW, deviation_BHW = sampler.finish(problem, x_BCHW), sampler.deviation(state)
        misfit_B = problem.objective(finished_BCHW)[1]
        return Sample(state.z_BL, finished_BCHW, misfit_B, deviation_BHW)


def _info(
    problem: Problem,
    sampler: SamplerSpec,
    before: SamplerState,
    after: SamplerState,
    step: Step,
    started: float,
) -> StepInfo:
    """Argument of the step hook after a finished step."""
    x_hat_BCHW, misfit = step.x_hat_BCHW, step.misfit
    if x_hat_BCHW is None:
        x_hat_BCHW = problem.decode(step.clean_BL if step.clean_BL is not None else step.z_BL)
        misfit = float(problem.objective(x_hat_BCHW)[1].mean())
    decided_BL = (before.z_BL == MASK) & (after.z_BL != MASK)
    return StepInfo(
        state=after,
        total=sampler.steps,
        x_hat_BCHW=x_hat_BCHW,
        anchors_BL=decided_BL if step.anchors_BL is None else step.anchors_BL,
        confidence_BL=step.confidence_BL,
        loss_curve=step.loss_curve,
        misfit=misfit,
        seconds=time.perf_counter() - started,
        prior_seconds=problem.prior_seconds,
    )
