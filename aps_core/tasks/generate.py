"""Text to image: samples the prior without a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field

from aps_core.errors import InvalidSpec
from aps_core.imaging.provenance import TRAINED
from aps_core.samplers.prior import PriorConfig
from aps_core.tasks.base import Inputs, RunContext
from aps_core.tasks.pictures import PictureTaskSpec
from aps_core.tasks.results import PictureResult
from aps_core.types import Size


class GenerateSpec(PictureTaskSpec):
    """Generate pictures from a prompt by sampling the prior, without a measurement."""

    type: Literal["generate"] = "generate"
    prompt: str = Field(
        "",
        max_length=500,
        description="Text that describes the picture. If empty, generation is unconditional.",
    )
    width: int | None = Field(
        None, ge=16, le=4096, description="Width in pixels. Default: the prior's native size."
    )
    height: int | None = Field(
        None, ge=16, le=4096, description="Height in pixels. Default: the prior's native size."
    )
    num_samples: int = Field(1, ge=1, le=16, description="Pictures to draw.")
    sampler: PriorConfig = Field(default_factory=PriorConfig, description="Sampler settings.")
    pictures: ClassVar[Mapping[str, bool]] = {}

    def check(self, image: Size | None, mask: Size | None, has_alpha: bool) -> None:
        """Checks the prompt; pictures are not accepted."""
        self.prior_spec().check_prompt(self.prompt)
        if image is not None or mask is not None:
            raise InvalidSpec("The task 'generate' takes no picture; leave 'image' and 'mask' out.")

    def output_size(self, image: Size | None) -> Size:
        """Size of each picture."""
        height, width = self.prior_spec().native_size
        return self.width or width, self.height or height

    def resolved(self) -> Self:
        """Fills in the sampler's settings and the picture's size."""
        width, height = self.output_size(None)
        return super().resolved().model_copy(update={"width": width, "height": height})

    def run(self, inputs: Inputs, context: RunContext) -> PictureResult:
        """MaskGIT sampling as in MMaDA."""
        return self.drawn(None, self.output_size(None), context, source_type=TRAINED)
