"""A style measure in a file outside the repository's packages."""

from typing import ClassVar, Literal

from pydantic import Field

from aps_core import StyleMeasureSpec


class Palette(StyleMeasureSpec):
    """Compares the mean colours."""

    type: Literal["outside_style_measure"] = "outside_style_measure"
    vividness: float = Field(1.0, gt=0, le=4, description="Weight of the distance.")
    recommended: ClassVar = {"steps": 2}

    def bind(self, reference_CHW, tokenizer, networks):
        class Objective:
            noise_floor = temperature = 0.0

            def __call__(objective, x_BCHW):
                error_B3 = x_BCHW.mean((2, 3)) - reference_CHW.mean((1, 2))
                distance_B = self.vividness * error_B3.square().mean(1)
                return distance_B * x_BCHW[0].numel(), distance_B.detach()

        return Objective()
