"""Adds a sampler: deriving from ``SamplerSpec`` registers it, and one method draws a step.

Imported anywhere, or registered under the entry-point group ``aps.samplers``, it is also known to
the command line, the API, the studio and ``aps eval``.
"""

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field

import aps_core as aps
from aps_core.types import MASK


class FromCentre(aps.SamplerSpec):
    """The prior's likeliest codes, decided from the picture's centre outwards."""

    type: Literal["from_centre"] = "from_centre"
    steps: int = Field(8, ge=1, le=128, description="Rings of the picture.")

    def step(self, problem: aps.Problem, memory: Any, state: aps.SamplerState) -> aps.Step:
        share = (state.step + 1) / self.steps
        logits_BLK = problem.logits(state.z_BL, 1 - state.step / self.steps, self.guidance_scale)
        sides = [torch.linspace(-1, 1, side) for side in problem.grid]
        distance_L = torch.cartesian_prod(*sides).abs().amax(1)
        open_BL = (state.z_BL == MASK) & (distance_L <= share).to(state.z_BL.device)
        best_BL = torch.where(state.z_BL == MASK, logits_BLK.argmax(-1), state.z_BL)
        z_BL = torch.where(open_BL, best_BL, state.z_BL)
        return aps.Step(z_BL=z_BL, confidence_BL=logits_BLK.amax(-1), clean_BL=best_BL)


def main(photo: Path, output: Path, **settings: int) -> aps.Restoration:
    """Draws a picture of 64x64 pixels; the measurement only says how far it is from ``photo``."""
    measurement = aps.Measurement(photo, "denoise", sigma=0.1)
    result = aps.restore(measurement, sampler=FromCentre(**settings))
    result.image.save(output)
    return result


if __name__ == "__main__":
    main(Path(__file__).parent / "photos" / "coffee.png", Path("own-sampler.png"))
