"""How a sampler's run starts, reports and ends."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from aps_core.aps import Sample
from aps_core.errors import SamplingCancelled
from aps_core.types import MASK, Grid, Objective, Prior, SamplerState, StepHook, StepInfo


def start(
    grid: Grid, generator: Generator, batch: int, resume: SamplerState | None
) -> tuple[Tensor, int]:
    """Tokens (B, L) and number of the first step: all masked, or where an interrupted run
    stopped.
    """
    if resume is None:
        return torch.full((batch, grid[0] * grid[1]), MASK, device=generator.device), 0
    generator.set_state(resume.generator_state)
    return resume.z_BL.to(generator.device), resume.step


def report(on_step: StepHook | None, info: StepInfo) -> None:
    """Calls the hook.

    Raises:
        SamplingCancelled: it returned False.
    """
    if on_step is not None and on_step(info) is False:
        raise SamplingCancelled(f"Stopped after reverse step {info.state.step} of {info.total}.")


def finish(prior: Prior, objective: Objective | None, z_BL: Tensor, grid: Grid) -> Sample:
    """Decodes the final tokens; without an objective the misfit is 0."""
    x_BCHW = prior.tokenizer.decode(prior.tokenizer.codebook_KD[z_BL], grid)
    return Sample(
        z_BL, x_BCHW, objective(x_BCHW)[1] if objective is not None else x_BCHW.new_zeros(len(z_BL))
    )
