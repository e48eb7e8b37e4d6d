"""Text-guided editing: regenerates part of a picture, or extends it beyond its edges, and keeps the
rest.

Large-block inpainting (paper, appendix "Text-Guided Large Block Inpainting"). The known part is
kept in three ways. Tokens that lie entirely in it are decided from the start. The measurement of
the known pixels guides the other tokens. The result copies known pixels from the upload.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.imaging import images
from aps_core.imaging.blending import filled, joined
from aps_core.imaging.images import MaskCoverage
from aps_core.imaging.resampling import resize
from aps_core.operators.inpainting import Inpainting
from aps_core.restoration.layout import check_mask_size
from aps_core.restoration.plan import check_coverage
from aps_core.samplers import SamplerSpec
from aps_core.tasks.base import Inputs, RunContext, Slot
from aps_core.tasks.masks import mask_slot, mask_source
from aps_core.tasks.pictures import MeasuredTaskSpec, Prompt
from aps_core.tasks.results import PictureResult
from aps_core.types import MASK, Size

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.engines.engine import ImageEngine
else:
    torch = lazy_import("torch")

Margin = Annotated[int, Field(ge=0, le=4096)]


class EditSpec(MeasuredTaskSpec):
    """Regenerate part of a picture from a prompt, or extend it beyond its edges; every other pixel
    stays as it is.
    """

    type: Literal["edit"] = "edit"
    prompt: Prompt = Field(
        description="Text that describes the whole picture, including the new part."
    )
    left: Margin = Field(0, description="Pixels to add on the left.")
    top: Margin = Field(0, description="Pixels to add above.")
    right: Margin = Field(0, description="Pixels to add on the right.")
    bottom: Margin = Field(0, description="Pixels to add below.")
    feather: int = Field(
        8,
        ge=0,
        le=256,
        description=(
            "Width in pixels of the band inside the new part that is blended with its"
            " surroundings; 0"
            " leaves a hard seam."
        ),
    )
    working_size: int | None = Field(
        None,
        ge=32,
        le=4096,
        description=(
            "Generate the new part at a size whose longer side is at most this many pixels; the"
            " rest keeps the upload's resolution."
        ),
    )

    def output_size(self, image: Size | None) -> Size:
        """Size of the upload plus the added margins."""
        width, height = _given(image)
        return width + self.left + self.right, height + self.top + self.bottom

    def sampled_size(self, image: Size | None) -> Size:
        """Limited by ``working_size``."""
        width, height = self.output_size(image)
        scale = min(1.0, (self.working_size or max(width, height)) / max(width, height))
        return max(1, round(width * scale)), max(1, round(height * scale))

    def reduced_size(self, image: Size | None) -> Size | None:
        """Size at which the new part is drawn, if ``working_size`` limits it."""
        size = self.sampled_size(image)
        return None if size == self.output_size(image) else size

    def own_settings(self) -> dict[str, Any]:
        """Starts from a random sample of the prior. The prior's most likely codes would fill a
        large block with one colour.
        """
        return {"temperature": 1.0}

    def check(self, image: Size | None, mask: Size | None, has_alpha: bool) -> None:
        """Checks sampler, prompt, mask size and that there is something to regenerate."""
        self.prior_spec().check_prompt(self.prompt)
        if not self.sampler.keeps_decided:
            keeping = [n for n in sorted(SamplerSpec.family) if SamplerSpec.named(n).keeps_decided]
            raise InvalidSpec(
                f"The sampler '{self.sampler.type}' resamples every token, so it cannot edit;"
                f" samplers that can: {', '.join(keeping)}."
            )
        image = _given(image)
        check_mask_size(mask, image)
        if mask is None and not has_alpha and not self._grows:
            raise InvalidSpec(
                "No part to regenerate is marked: send a 'mask' picture (white = keep), an image"
                " with transparent pixels, or pixels to add on a side."
            ).at("mask")

    def mask_slot(self, inputs: Inputs) -> Slot | None:
        """The mask picture, or an image with transparent pixels."""
        return mask_slot(inputs)

    def check_mask(self, known: MaskCoverage) -> None:
        """Requires a known pixel and, unless margins are added, an unknown one."""
        check_coverage(known, may_be_whole=self._grows)

    @property
    def _grows(self) -> bool:
        return any((self.left, self.top, self.right, self.bottom))

    def run(self, inputs: Inputs, context: RunContext) -> PictureResult:
        """Fixes known tokens, samples the rest under the measurement of known pixels, then copies
        the known pixels.
        """
        from aps_core.engines.engine import ImageEngine

        engine = context.engine
        assert isinstance(engine, ImageEngine)  # ``resolved`` rejects other priors
        upload = inputs.picture()
        truth_CHW, known_HW = (x.to(engine.device) for x in self._canvas(inputs))
        width, height = self.sampled_size(upload.size)
        y_CHW, seen_HW = _reduced(truth_CHW, known_HW, height, width)
        z_1L = known_tokens(engine, y_CHW, seen_HW)
        feather = round(self.feather * width / known_HW.shape[1])
        operator = (
            Inpainting().bind((3, height, width), engine.device, seen_HW).cropped(height, width)
        )
        objective = engine.measurement_objective(operator, y_CHW, 0.0, self.loss)
        steps = min(self.sampler.steps, int((z_1L == MASK).sum()))  # at least one token per step
        spec = self.model_copy(update={"sampler": self.sampler.model_copy(update={"steps": steps})})
        result = replace(
            spec.drawn(
                objective,
                (width, height),
                context,
                z_BL=z_1L.expand(self.num_samples, -1),
                finish=lambda x: joined(x, y_CHW, seen_HW, feather),
            ),
            spec=self,
        )
        if (height, width) == known_HW.shape:
            return result
        enlarged_BCHW = torch.stack(
            [resize(x, (known_HW.shape[0], known_HW.shape[1])) for x in result.pictures_BCHW]
        )
        pictures_BCHW = joined(enlarged_BCHW, truth_CHW, known_HW, self.feather).clamp(-1, 1)
        return replace(
            result,
            pictures_BCHW=pictures_BCHW,
            notes=[f"The new part was drawn at {width}x{height} pixels and enlarged."],
        )

    def _canvas(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """The upload with its new margins (3, H, W), 0 where unknown, and the known mask (H, W)."""
        source = mask_source(inputs)
        x_CHW = images.to_tensor(inputs.picture())
        known_HW = (
            images.mask_to_tensor(source) if source is not None else torch.ones(x_CHW.shape[1:])
        )
        sides = (self.left, self.right, self.top, self.bottom)
        known_HW, x_CHW = (
            torch.nn.functional.pad(known_HW, sides),
            torch.nn.functional.pad(x_CHW, sides),
        )
        return x_CHW * known_HW, known_HW


def known_tokens(engine: ImageEngine, y_CHW: Tensor, known_HW: Tensor) -> Tensor:
    """Codes (1, L) of the tokens whose pixels are all known, ``MASK`` elsewhere."""
    tokenizer = engine.prior.tokenizer
    padded = engine.padded(torch.cat([filled(y_CHW, known_HW), known_HW[None]]))[None]
    known_BL = -torch.nn.functional.max_pool2d(-padded[:, 3:], tokenizer.stride).flatten(1)
    return torch.where(known_BL > 0, tokenizer.encode(padded[:, :3]), MASK)


def _reduced(x_CHW: Tensor, known_HW: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Resizes picture and mask; a pixel stays known only if all its source pixels are known."""
    if known_HW.shape == (height, width):
        return x_CHW, known_HW
    weight_HW = resize(known_HW[None], (height, width))[0]
    small_HW = (weight_HW > 0.999).float()
    if not bool(small_HW.any()):
        raise InvalidSpec(
            f"At {width}x{height} pixels nothing of the kept part is left; set a larger"
            " 'working_size'."
        )
    return resize(x_CHW, (height, width)) * small_HW, small_HW


def _given(image: Size | None) -> Size:
    if image is None:
        raise InvalidSpec("Editing needs a picture; send one as 'image'.")
    return image
