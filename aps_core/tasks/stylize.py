"""Stylization: generates a picture from a prompt in the style of a reference picture, without
training (paper, appendix "Reference-based Stylization").

The measurement is the style of the decoded picture. Algorithm 1 moves the tokens' logits towards
the reference's style.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.imaging import images
from aps_core.imaging.provenance import TRAINED
from aps_core.imaging.resampling import resize
from aps_core.registry import AnyOf
from aps_core.style_measures import StyleMeasureSpec
from aps_core.style_measures.gram import Gram
from aps_core.tasks.base import Inputs, RunContext
from aps_core.tasks.pictures import PictureTaskSpec, Prompt
from aps_core.tasks.results import PictureResult
from aps_core.types import Objective, Size

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.engines.engine import ImageEngine
else:
    torch = lazy_import("torch")

MIN_STYLE_SIDE = 16
"""Minimum side of a style picture in pixels."""


class StylizeSpec(PictureTaskSpec):
    """Generate a picture from a prompt in the style of a reference picture; a content picture may
    give the layout.
    """

    type: Literal["stylize"] = "stylize"
    prompt: Prompt = Field(description="Text that describes what the picture shows.")
    measure: Annotated[StyleMeasureSpec, AnyOf(StyleMeasureSpec, default="gram")] = Field(
        default_factory=Gram,
        description=(
            "How the style of the result is compared with the style picture's ('gram' if no type is"
            " given)."
        ),
    )
    content_strength: float = Field(
        0.5,
        ge=0,
        lt=1,
        description=(
            "Weight of the content picture's layout relative to the style; 0 ignores the layout."
        ),
    )
    width: int | None = Field(
        None,
        ge=16,
        le=4096,
        description=(
            "Width in pixels. Default: the content picture's width, else the prior's native size."
        ),
    )
    height: int | None = Field(
        None,
        ge=16,
        le=4096,
        description=(
            "Height in pixels. Default: the content picture's height, else the prior's native size."
        ),
    )
    working_size: int | None = Field(
        None,
        ge=32,
        le=4096,
        description=(
            "Reduce the content picture so that its longer side is at most this many pixels."
        ),
    )
    pictures: ClassVar[Mapping[str, bool]] = {"style": True, "image": False}

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Weights of the style measure."""
        measure: StyleMeasureSpec = self.measure
        return measure.weights

    def output_size(self, image: Size | None) -> Size:
        """The requested size, else the content picture's, else the prior's native size."""
        height, width = self.prior_spec().native_size
        if image is not None:
            width, height = image
            scale = min(1.0, (self.working_size or max(image)) / max(image))
            width, height = max(1, round(width * scale)), max(1, round(height * scale))
        return self.width or width, self.height or height

    def reduced_size(self, image: Size | None) -> Size | None:
        """Size to which the content picture is brought, if that is smaller than it is."""
        if image is None or max(size := self.output_size(image)) >= max(image):
            return None
        return size

    def own_settings(self) -> dict[str, Any]:
        """Settings recommended for the style measure."""
        measure: StyleMeasureSpec = self.measure
        return dict(measure.recommended)

    def work(self, image: Size | None) -> tuple[int, int]:
        """Twice the usual passes: the encoder runs after every decode."""
        tokens, passes = super().work(image)
        return tokens, 2 * passes

    def check(self, image: Size | None, mask: Size | None, has_alpha: bool) -> None:
        """Checks the prompt; rejects a mask."""
        self.prior_spec().check_prompt(self.prompt)
        if mask is not None:
            raise InvalidSpec("The task 'stylize' takes no mask; leave 'mask' out.").at("mask")

    def check_sizes(self, inputs: Inputs) -> None:
        """Also checks the minimum size of the style picture."""
        super().check_sizes(inputs)
        style = _style(inputs)
        if min(style.width, style.height) < MIN_STYLE_SIDE:
            raise InvalidSpec(
                f"The style picture is {style.width}x{style.height} pixels; it needs"
                f" {MIN_STYLE_SIDE} on each side."
            ).at("style")

    def run(self, inputs: Inputs, context: RunContext) -> PictureResult:
        """Extracts the reference's style, then runs the sampler. The misfit is the style
        distance.
        """
        from aps_core.engines.engine import ImageEngine

        engine = context.engine
        assert isinstance(engine, ImageEngine)  # ``resolved`` rejects other priors
        image = inputs.image
        width, height = self.output_size(image.size if image is not None else None)
        objective = self.objective(inputs, engine, height, width)
        # no pixel is copied from the content picture
        return self.drawn(objective, (width, height), context, source_type=TRAINED)

    def objective(self, inputs: Inputs, engine: ImageEngine, height: int, width: int) -> Objective:
        """Style distance to the reference, plus the content distance if a content picture is given.

        Args:
            inputs: style picture and optional content picture.
            engine: prior, device and the measure's networks.
            height: height of the result in pixels.
            width: width of the result in pixels.

        Raises:
            WeightsMissing, WeightsInvalid: a network of the measure is absent or damaged.
        """
        from aps_core.objectives.gram import Content, WeightedSum

        tokenizer, measure = engine.prior.tokenizer, self.measure
        style_CHW = reference(images.to_tensor(_style(inputs)).to(engine.device), height, width)
        style = measure.bind(style_CHW, tokenizer, engine.network)
        if inputs.image is None or not self.content_strength:
            return style
        content_CHW = resize(images.to_tensor(inputs.image).to(engine.device), (height, width))
        content = Content(tokenizer, engine.padded(content_CHW))
        return WeightedSum([(1 - self.content_strength, style), (self.content_strength, content)])


def reference(style_CHW: Tensor, height: int, width: int) -> Tensor:
    """Reduces a larger style picture until it just covers the result, so that strokes keep their
    size in pixels.
    """
    scale = max(height / style_CHW.shape[1], width / style_CHW.shape[2])
    if scale >= 1:
        return style_CHW
    return resize(
        style_CHW, (round(style_CHW.shape[1] * scale), round(style_CHW.shape[2] * scale))
    ).clamp(-1, 1)


def _style(inputs: Inputs) -> images.Picture:
    if inputs.style is None:
        raise InvalidSpec("Stylization needs a reference picture; send one as 'style'.")
    return inputs.style
