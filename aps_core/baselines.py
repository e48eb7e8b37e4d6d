"""Samplers on the same prior without APS's optimisation, for comparison. Same signature as ``sample_aps``."""

from __future__ import annotations

import time

import torch
from torch import Generator, Tensor

from aps_core.aps import Sample
from aps_core.config import APSConfig
from aps_core.errors import SamplingCancelled
from aps_core.schedule import mask_fraction
from aps_core.types import MASK, Grid, Objective, Prior, SamplerState, StepHook, StepInfo


@torch.no_grad()
def sample_prior(
    prior: Prior,
    objective: Objective | None,
    config: APSConfig,
    *,
    grid: Grid,
    generator: Generator,
    batch: int = 1,
    condition: str = "",
    on_step: StepHook | None = None,
    resume: SamplerState | None = None,
    z_BL: Tensor | None = None,
    temperature: float = 1.0,
) -> Sample:
    """Unguided generation: MaskGIT's confidence sampling as MMaDA does it (``t2i_generate``).

    ``objective`` only reports the misfit. ``z_BL`` may hold decided tokens, which are kept.
    ``temperature`` scales the Gumbel noise on the confidences; 0 also takes the likeliest code of every
    token instead of drawing it, which makes the run deterministic.
    """
    num_tokens = grid[0] * grid[1]
    if z_BL is None:
        z_BL = torch.full((batch, num_tokens), MASK, device=generator.device)
    first = 0
    if resume is not None:
        z_BL, first = resume.z_BL.to(generator.device), resume.step
        generator.set_state(resume.generator_state)
    for step in range(first, config.steps):
        started = time.perf_counter()
        masked_BL = z_BL == MASK
        logits_BLK = prior.logits(z_BL, grid=grid, mask_fraction=mask_fraction(step / config.steps), condition=condition, guidance_scale=config.guidance_scale)
        prior_seconds = time.perf_counter() - started
        p_BLK = logits_BLK.softmax(-1)
        if temperature == 0:
            drawn_BL = p_BLK.argmax(-1)
        else:
            drawn_BL = torch.multinomial(p_BLK.flatten(0, 1), 1, generator=generator).view_as(z_BL)
        x_BL = torch.where(masked_BL, drawn_BL, z_BL)
        p_BL = p_BLK.gather(-1, x_BL[..., None])[..., 0].masked_fill(~masked_BL, torch.finfo(p_BLK.dtype).max)
        kappa_BL = p_BL.clamp(min=1e-20).log()
        tau = _temperature(step, config.steps, temperature)
        if tau:
            uniform = torch.rand(kappa_BL.shape, generator=generator, device=kappa_BL.device).clamp(1e-20, 1 - 1e-7)
            kappa_BL = kappa_BL - tau * torch.log(-torch.log(uniform))
        if step + 1 < config.steps:
            left = int(torch.tensor(num_tokens * mask_fraction((step + 1) / config.steps)).floor())
            left_B1 = masked_BL.sum(1, keepdim=True).sub(1).clamp(max=left).clamp(min=1)
            threshold_B1 = kappa_BL.sort(dim=1).values.gather(1, left_B1)
            z_next_BL = torch.where(kappa_BL < threshold_B1, MASK, x_BL)
        else:
            z_next_BL = x_BL
        if on_step is not None:
            x_hat_BCHW = prior.tokenizer.decode(prior.tokenizer.codebook_KD[x_BL], grid)
            misfit = float(objective(x_hat_BCHW)[1].mean()) if objective is not None else 0.0
            state = SamplerState(step + 1, z_next_BL, generator.get_state())
            anchors_BL = masked_BL & (z_next_BL != MASK)
            info = StepInfo(state, config.steps, x_hat_BCHW, anchors_BL, kappa_BL, [], misfit, time.perf_counter() - started, prior_seconds)
            if on_step(info) is False:
                raise SamplingCancelled(f"Stopped after reverse step {step + 1} of {config.steps}.")
        z_BL = z_next_BL
    x_BCHW = prior.tokenizer.decode(prior.tokenizer.codebook_KD[z_BL], grid)
    misfit_B = objective(x_BCHW)[1] if objective is not None else torch.zeros(len(z_BL), device=z_BL.device)
    return Sample(z_BL, x_BCHW, misfit_B)


def _temperature(step: int, steps: int, temperature: float) -> float:
    """MMaDA updates the temperature cumulatively: tau <- tau * (1 - u) before every use, u = (s + 1) / T."""
    for s in range(step + 1):
        temperature *= 1 - (s + 1) / steps
    return temperature
