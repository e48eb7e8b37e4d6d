"""Defocus blur: a lens out of focus spreads every point over a disc."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.operators.base import Bound, OperatorSpec, Shape, Support
from aps_core.operators.blur import check_reach, reflecting_filter

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")

COLUMNS = 64
"""Columns per pixel in which the disc's area is summed; heights are exact."""


class DefocusBlur(OperatorSpec):
    """The lens was out of focus: every point of light became a disc."""

    type: Literal["defocus_blur"] = "defocus_blur"
    radius: float = Field(
        3.0, ge=0.01, le=200, description="Radius of the disc in pixels of the upload."
    )
    linear: ClassVar[bool] = True
    lengths: ClassVar[tuple[str, ...]] = ("radius",)

    @property
    def support(self) -> Support:
        """The disc."""
        return Support(_reach(self.radius))

    def words(self) -> str:
        return f"a defocus of {self.radius:.3g} pixels"

    def check_shape(self, shape_CHW: Shape) -> None:
        """The picture must be larger than the disc."""
        check_reach(_reach(self.radius), *shape_CHW[1:])

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        self.check_shape(shape_CHW)
        kernel = torch.from_numpy(disc_kernel(self.radius)).float().to(device)
        return Bound(reflecting_filter(kernel, *shape_CHW[1:]))


def disc_kernel(radius: float) -> NDArray[np.float64]:
    """A disc as a square kernel of odd side and sum 1.

    Each weight is the area of the pixel inside the disc, so that the kernel changes smoothly with
    the radius.

    Args:
        radius: in pixels, > 0.
    """
    pixels = np.arange(-_reach(radius), _reach(radius) + 1, dtype=np.float64)
    fine = (np.arange(COLUMNS * len(pixels)) + 0.5) / COLUMNS + pixels[0] - 0.5
    half = np.sqrt(np.clip(radius**2 - fine**2, 0, None))[None]
    low, high = pixels[:, None] - 0.5, pixels[:, None] + 0.5
    inside = np.clip(np.minimum(high, half) - np.maximum(low, -half), 0, None)
    area = inside.reshape(len(pixels), len(pixels), COLUMNS).mean(2)
    # a tiny disc can lie between two of the columns
    area[len(pixels) // 2, len(pixels) // 2] += 1e-9
    kernel: NDArray[np.float64] = area / area.sum()
    return kernel


def _reach(radius: float) -> int:
    """Pixels touched to each side of the centre."""
    return math.ceil(radius - 0.5) if radius > 0.5 else 0
