"""Runs any sampler: start or resume, reverse steps, timing, hooks, cancellation, final decode."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Generator, Tensor

from aps_core.errors import InvalidSpec, SamplingCancelled
from aps_core.sampling.problem import Problem, Sampler, Step
from aps_core.types import (
    MASK,
    Grid,
    InnerHook,
    Objective,
    Prior,
    Sample,
    SamplerState,
    StepHook,
    StepInfo,
)


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
    sampler: Sampler,
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
    problem = Problem(
        prior=prior,
        objective=objective if objective is not None else Unmeasured(),
        grid=grid,
        generator=generator,
        condition=condition,
        on_inner=on_inner,
        graph=graph,
    )
    z_BL = z_BL.to(generator.device)
    state = _first_state(z_BL, generator, resume)
    with torch.no_grad():
        memory = sampler.init(problem, z_BL)
        while state.step < sampler.steps:
            state = _next_state(problem, sampler, memory, state, on_step)
        x_BCHW = sampler.finish(problem, sampler.decoded(problem, state))
        misfit_B = problem.objective(x_BCHW)[1]
        return Sample(state.z_BL, x_BCHW, misfit_B, sampler.deviation(state))


def _first_state(z_BL: Tensor, generator: Generator, resume: SamplerState | None) -> SamplerState:
    """The state of a new run, or the one that a run resumes from, on the generator's device."""
    if resume is None:
        return SamplerState(0, z_BL, generator.get_state())
    generator.set_state(resume.generator_state)
    carried = {name: tensor.to(z_BL.device) for name, tensor in resume.carried.items()}
    return SamplerState(resume.step, resume.z_BL.to(z_BL.device), resume.generator_state, carried)


def _next_state(
    problem: Problem,
    sampler: Sampler,
    memory: Any,
    before: SamplerState,
    on_step: StepHook | None,
) -> SamplerState:
    """Runs one reverse step and calls the step hook."""
    started = time.perf_counter()
    problem.prior_seconds = 0.0
    step = sampler.step(problem, memory, before)
    after = SamplerState(
        before.step + 1, step.z_BL, problem.generator.get_state(), dict(step.carried)
    )
    if (
        on_step is not None
        and on_step(_info(problem, sampler, before, after, step, started)) is False
    ):
        raise SamplingCancelled(f"Stopped after reverse step {after.step} of {sampler.steps}.")
    return after


def _info(
    problem: Problem,
    sampler: Sampler,
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
        noise_floor=problem.objective.noise_floor,
    )
