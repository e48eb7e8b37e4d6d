"""The prior alone: MaskGIT's confidence sampling as MMaDA does it (``t2i_generate``)."""

from __future__ import annotations

import time

import torch
from torch import Generator, Tensor

from aps_core.aps import Sample
from aps_core.samplers.run import finish, report, start
from aps_core.sampling.config import PriorConfig
from aps_core.sampling.random_ops import categorical
from aps_core.sampling.schedule import mask_fraction
from aps_core.types import MASK, Grid, Objective, Prior, SamplerState, StepHook, StepInfo


@torch.no_grad()
def sample_prior(
    prior: Prior,
    objective: Objective | None,
    config: PriorConfig,
    *,
    grid: Grid,
    generator: Generator,
    batch: int = 1,
    condition: str = "",
    on_step: StepHook | None = None,
    resume: SamplerState | None = None,
    z_BL: Tensor | None = None,
) -> Sample:
    """Unguided generation; ``objective`` only reports the misfit. ``z_BL`` may hold decided tokens,
    which are kept.

    Raises:
        SamplingCancelled: ``on_step`` returned False.
    """
    first_BL, first = start(grid, generator, batch, resume)
    z_BL = first_BL if z_BL is None or resume is not None else z_BL
    order_temperature = 1.0 if config.order_temperature is None else config.order_temperature
    for step in range(first, config.steps):
        started = time.perf_counter()
        fraction = mask_fraction(step / config.steps)
        logits_BLK = prior.logits(
            z_BL,
            grid=grid,
            mask_fraction=fraction,
            condition=condition,
            guidance_scale=config.guidance_scale,
        )
        prior_seconds = time.perf_counter() - started
        z_next_BL, x_BL, kappa_BL = unmask(
            logits_BLK, z_BL, step, config.steps, order_temperature, generator
        )
        if on_step is not None:
            # for the hook alone
            x_hat_BCHW = prior.tokenizer.decode(prior.tokenizer.codebook_KD[x_BL], grid)
            misfit = float(objective(x_hat_BCHW)[1].mean()) if objective is not None else 0.0
            state = SamplerState(step + 1, z_next_BL, generator.get_state())
            anchors_BL = (z_BL == MASK) & (z_next_BL != MASK)
            seconds = time.perf_counter() - started
            report(
                on_step,
                StepInfo(
                    state,
                    config.steps,
                    x_hat_BCHW,
                    anchors_BL,
                    kappa_BL,
                    [],
                    misfit,
                    seconds,
                    prior_seconds,
                ),
            )
        z_BL = z_next_BL
    return finish(prior, objective, z_BL, grid)


def unmask(
    logits_BLK: Tensor,
    z_BL: Tensor,
    step: int,
    steps: int,
    temperature: float,
    generator: Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    """One reverse step: draws every masked token, keeps the most confident and masks the rest
    again.

    Returns the next state, all tokens as drawn, and their confidences, without the noise on their
    order, each (B, L).
    """
    masked_BL = z_BL == MASK
    p_BLK = logits_BLK.softmax(-1)
    if temperature == 0:
        drawn_BL = p_BLK.argmax(-1)
    else:
        drawn_BL = categorical(p_BLK.flatten(0, 1), generator).view_as(z_BL)
    x_BL = torch.where(masked_BL, drawn_BL, z_BL)
    p_BL = p_BLK.gather(-1, x_BL[..., None])[..., 0].masked_fill(
        ~masked_BL, torch.finfo(p_BLK.dtype).max
    )
    kappa_BL = order_BL = p_BL.clamp(min=1e-20).log()
    tau = _temperature(step, steps, temperature)
    if tau:
        uniform = torch.rand(kappa_BL.shape, generator=generator, device=kappa_BL.device).clamp(
            1e-20, 1 - 1e-7
        )
        order_BL = kappa_BL - tau * torch.log(-torch.log(uniform))
    if step + 1 == steps:
        return x_BL, x_BL, kappa_BL
    left = int(torch.tensor(z_BL.shape[1] * mask_fraction((step + 1) / steps)).floor())
    left_B1 = masked_BL.sum(1, keepdim=True).sub(1).clamp(max=left).clamp(min=1)
    threshold_B1 = order_BL.sort(dim=1).values.gather(1, left_B1)
    return torch.where(order_BL < threshold_B1, MASK, x_BL), x_BL, kappa_BL


def _temperature(step: int, steps: int, temperature: float) -> float:
    """MMaDA updates the temperature cumulatively: tau <- tau * (1 - u) before every use, u = (s +
    1) / T.
    """
    for s in range(step + 1):
        temperature *= 1 - (s + 1) / steps
    return temperature
