"""Super-resolution: antialiased bicubic reduction."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from aps_core.errors import InvalidSpec
from aps_core.imaging.resampling import mirror_pad, resize
from aps_core.operators.base import Bound, OperatorSpec, Shape, Support

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class SuperResolution(OperatorSpec):
    """The picture was reduced in size; restore it at a multiple of the measurement's size."""

    type: Literal["super_resolution"] = "super_resolution"
    factor: Literal[2, 4, 8] = Field(
        4, description="Restored pixels per measured pixel along one axis."
    )
    linear: ClassVar[bool] = True

    @property
    def support(self) -> Support:
        """The bicubic kernel, four measured pixels wide."""
        return Support(2 * self.factor, self.factor)

    def words(self) -> str:
        return f"a reduction to 1/{self.factor} of the size"

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        _, height, width = shape_CHW
        if height % self.factor or width % self.factor:
            raise InvalidSpec(
                f"A {width}x{height} picture cannot be reduced by {self.factor}: both sides must be"
                f" multiples of {self.factor}."
            )
        return Bound(self._reduce)

    def image_shape(self, measurement_CHW: Shape) -> Shape:
        channels, height, width = measurement_CHW
        return channels, height * self.factor, width * self.factor

    def _reduce(self, x_BCHW: Tensor) -> Tensor:
        # Bicubic (a = -0.5) stretched by the factor, mirrored borders. torch renormalises at the
        # border instead, so mirror the picture by the kernel's reach and crop it off afterwards.
        f = self.factor
        reach = 2 * f, 2 * f
        mirrored = mirror_pad(x_BCHW, reach, reach, repeat_edge=True)
        y = resize(mirrored, (mirrored.shape[-2] // f, mirrored.shape[-1] // f), deterministic=True)
        return y[..., 2:-2, 2:-2]
