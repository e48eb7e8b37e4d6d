"""The prior without a measurement: MaskGIT's confidence sampling as in MMaDA's ``t2i_generate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.samplers.base import REVERSE_STEPS, SamplerSpec
from aps_core.sampling.problem import Problem, Step
from aps_core.sampling.random_ops import categorical
from aps_core.sampling.schedule import mask_fraction
from aps_core.types import MASK, SamplerState

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

else:
    torch = lazy_import("torch")


class PriorConfig(SamplerSpec):
    """The prior alone: unguided generation, which ignores the measurement."""

    type: Literal["prior_only"] = "prior_only"
    steps: int = Field(15, ge=1, le=128, description=REVERSE_STEPS)
    guidance_scale: float = Field(
        3.5,
        ge=0,
        le=20,
        description=(
            "Classifier-free guidance g of (1+g) cond - g uncond. Only matters with a prompt."
        ),
    )
    order_temperature: float | None = Field(
        None,
        ge=0,
        le=1000,
        description=(
            "Noise on the choice of tokens to keep; more makes their order more random. 0 also"
            " takes the likeliest code of every token, so that nothing is drawn at random. Left"
            " out: the prior's own, which is 1 for MMaDA."
        ),
    )
    keeps_decided: ClassVar[bool] = True

    def step(self, problem: Problem, memory: Any, state: SamplerState) -> Step:
        """Samples every masked token and keeps the most confident ones."""
        temperature = 1.0 if self.order_temperature is None else self.order_temperature
        fraction = mask_fraction(state.step / self.steps)
        logits_BLK = problem.logits(state.z_BL, fraction, self.guidance_scale)
        z_next_BL, x_BL, kappa_BL = unmask(
            logits_BLK, state.z_BL, state.step, self.steps, temperature, problem.generator
        )
        return Step(z_BL=z_next_BL, confidence_BL=kappa_BL, clean_BL=x_BL)


def unmask(
    logits_BLK: Tensor,
    z_BL: Tensor,
    step: int,
    steps: int,
    temperature: float,
    generator: Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    """One reverse step: samples every masked token, keeps the most confident ones and masks the
    others again.

    Args:
        logits_BLK: the prior's logits.
        z_BL: current tokens, ``MASK`` where undecided.
        step: number of finished reverse steps, from 0.
        steps: total number of reverse steps.
        temperature: noise on the order of the tokens, >= 0; 0 also replaces sampling by argmax.
        generator: source of random numbers.

    Returns:
        The next tokens, all tokens as sampled, and their log-confidences without noise; each (B,
            L).
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
    left_B1 = left_B1.clamp(max=z_BL.shape[1] - 1)  # a single token is always decided
    order_BL = order_BL.masked_fill(~masked_BL, torch.inf)  # decided tokens are kept
    threshold_B1 = order_BL.sort(dim=1).values.gather(1, left_B1)
    return torch.where(order_BL < threshold_B1, MASK, x_BL), x_BL, kappa_BL


def _temperature(step: int, steps: int, temperature: float) -> float:
    """MMaDA's cumulative temperature: ``tau <- tau * (1 - u)`` before every use, ``u = (s + 1) /
    T``.
    """
    for s in range(step + 1):
        temperature *= 1 - (s + 1) / steps
    return temperature
