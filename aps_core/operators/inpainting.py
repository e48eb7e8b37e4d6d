"""Inpainting: some pixels are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field
from pydantic.config import JsonDict

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.operators.base import Bound, OperatorSpec, Shape, Support

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


# ``x-when``: the value of another field for which forms show this field
_WHEN_RANDOM: JsonDict = {"x-when": {"mask": "random"}}
_WHEN_BOX: JsonDict = {"x-when": {"mask": "box"}}


class Inpainting(OperatorSpec):
    """Some pixels are missing: an uploaded mask or alpha channel, a box, or random ones."""

    type: Literal["inpainting"] = "inpainting"
    mask: Literal["upload", "box", "random"] = Field(
        "upload",
        description=(
            "'upload': the job's mask picture (white = known) or the image's alpha channel; 'box':"
            " a rectangle; 'random': single pixels."
        ),
    )
    fraction: float = Field(
        0.7, gt=0, lt=1, description="Share of pixels missing.", json_schema_extra=_WHEN_RANDOM
    )
    seed: int = Field(
        0, ge=0, lt=2**32, description="Seed of the random mask.", json_schema_extra=_WHEN_RANDOM
    )
    top: float = Field(
        0.25,
        ge=0,
        lt=1,
        description="Upper edge of the missing box, as a share of the height.",
        json_schema_extra=_WHEN_BOX,
    )
    left: float = Field(
        0.25,
        ge=0,
        lt=1,
        description="Left edge of the missing box, as a share of the width.",
        json_schema_extra=_WHEN_BOX,
    )
    height: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Height of the missing box, as a share of the picture's.",
        json_schema_extra=_WHEN_BOX,
    )
    width: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Width of the missing box, as a share of the picture's.",
        json_schema_extra=_WHEN_BOX,
    )
    linear: ClassVar[bool] = True

    @property
    def needs_mask(self) -> bool:
        """Only for ``mask='upload'``."""
        return self.mask == "upload"

    @property
    def support(self) -> Support | None:
        """Single pixels of an uploaded mask; other masks depend on the whole picture."""
        return Support(0) if self.needs_mask else None

    def words(self) -> str:
        if self.mask == "random":
            return f"{self.fraction:.0%} of the pixels missing"
        return "a missing box" if self.mask == "box" else "missing pixels"

    def check_shape(self, shape_CHW: Shape) -> None:
        """The box must leave some pixels known."""
        _, height, width = shape_CHW
        if self.mask == "box" and self._box(height, width) == (0, height, 0, width):
            raise InvalidSpec(
                "The box covers the whole picture, so no pixel is known; make it smaller,"
                " or use the task 'generate'."
            )

    def _box(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Row range and column range of the missing box, each as start and end (exclusive)."""
        top, left = int(self.top * height), int(self.left * width)
        bottom = min(height, top + max(1, round(self.height * height)))
        return top, bottom, left, min(width, left + max(1, round(self.width * width)))

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        known = self._known(shape_CHW[1], shape_CHW[2], mask_HW).to(device)[None, None]
        if not bool(known.any()):
            raise InvalidSpec("The mask leaves no pixel known; white (opaque) marks what is known.")
        return Bound(lambda x: x * known.to(x.dtype), weight=known, drawn={"mask": known[0, 0]})

    def _known(self, height: int, width: int, mask_HW: Tensor | None) -> Tensor:
        """Mask (H, W), 1 = known, 0 = unknown."""
        if self.mask == "upload":
            if mask_HW is None:
                raise InvalidSpec(
                    "Inpainting with an uploaded mask needs a mask picture or an image with an"
                    " alpha channel."
                )
            if tuple(mask_HW.shape) != (height, width):
                raise InvalidSpec(
                    f"The mask is {mask_HW.shape[1]}x{mask_HW.shape[0]} pixels, the image"
                    f" {width}x{height}; they must have the same size."
                )
            return mask_HW
        known = torch.ones(height, width)
        if self.mask == "box":
            top, bottom, left, right = self._box(height, width)
            known[top:bottom, left:right] = 0
            return known
        order = torch.randperm(height * width, generator=torch.Generator().manual_seed(self.seed))
        known.view(-1)[order[: int(height * width * self.fraction)]] = 0
        return known
