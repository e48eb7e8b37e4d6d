"""A sampler in a file outside the repository's packages."""

from typing import Literal

from pydantic import Field

from aps_core import SamplerSpec, Step
from aps_core.types import MASK


class Likeliest(SamplerSpec):
    """Takes the likeliest code of every token at once."""

    type: Literal["outside_sampler"] = "outside_sampler"
    steps: int = Field(1, ge=1, le=8, description="Reverse steps.")
    daring: float = Field(0.5, ge=0, le=1, description="Changes nothing.")

    def step(self, problem, memory, state):
        logits_BLK = problem.logits(state.z_BL, 1.0, self.guidance_scale)
        z_BL = logits_BLK.argmax(-1).where(state.z_BL == MASK, state.z_BL)
        return Step(z_BL=z_BL, confidence_BL=logits_BLK.amax(-1))
