"""Super-resolution: antialiased bicubic reduction."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.imaging.resampling import resize
from aps_core.operators.base import Bound, OperatorSpec, Shape

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


class SuperResolution(OperatorSpec):
    """The picture was reduced in size; restore it at ``factor`` times the measurement's size."""

    type: Literal["super_resolution"] = "super_resolution"
    factor: Literal[2, 4, 8] = Field(
        4, description="Restored pixels per measured pixel along one axis."
    )
    linear: ClassVar[bool] = True

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
        reach = 2 * f
        mirrored = _mirror(x_BCHW, reach)
        y = resize(mirrored, (mirrored.shape[-2] // f, mirrored.shape[-1] // f))
        return y[..., 2:-2, 2:-2]


def _mirror(x_BCHW: Tensor, n: int) -> Tensor:
    """Mirrors ``n`` pixels on every side, repeating the edge pixel."""
    for dim in (-2, -1):
        size = x_BCHW.shape[dim]
        index = torch.arange(-n, size + n, device=x_BCHW.device) % (2 * size)
        x_BCHW = x_BCHW.index_select(dim, torch.minimum(index, 2 * size - 1 - index))
    return x_BCHW
