"""Straight motion blur: camera or object moved along a line."""

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

POINTS = 32
"""Points per pixel of the path."""


class LinearMotionBlur(OperatorSpec):
    """Camera or object moved along a straight line while the picture was taken."""

    type: Literal["linear_motion_blur"] = "linear_motion_blur"
    length: float = Field(
        10.0, ge=0.01, le=400, description="Length of the movement in pixels of the upload."
    )
    angle: float = Field(
        0.0,
        ge=0,
        lt=180,
        description="Direction in degrees, counter-clockwise: 0 is horizontal, 90 vertical.",
    )
    linear: ClassVar[bool] = True
    lengths: ClassVar[tuple[str, ...]] = ("length",)

    @property
    def support(self) -> Support:
        """The line."""
        return Support(_reach(self.length))

    def words(self) -> str:
        return f"a straight motion of {self.length:.3g} pixels at {self.angle:.3g}°"

    def check_shape(self, shape_CHW: Shape) -> None:
        """The picture must be larger than half of the movement."""
        check_reach(_reach(self.length), *shape_CHW[1:])

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        self.check_shape(shape_CHW)
        kernel = torch.from_numpy(line_kernel(self.length, self.angle)).float().to(device)
        return Bound(reflecting_filter(kernel, *shape_CHW[1:]))


def line_kernel(length: float, angle: float) -> NDArray[np.float64]:
    """A line of uniform weight as a square kernel of odd side and sum 1.

    Every point of the line is shared between its four neighbouring pixels by bilinear weights, so
    that the kernel changes smoothly with length and angle.

    Args:
        length: in pixels, > 0.
        angle: in degrees, counter-clockwise from the horizontal.
    """
    reach, count = _reach(length), math.ceil(POINTS * length) + 1
    along = ((np.arange(count) + 0.5) / count - 0.5) * length
    # rows count downwards, so a positive angle has a negative row
    rows = reach - along * math.sin(math.radians(angle))
    columns = reach + along * math.cos(math.radians(angle))
    kernel = np.zeros((2 * reach + 1, 2 * reach + 1))
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    for row, row_weight in ((top, top + 1 - rows), (top + 1, rows - top)):
        for column, weight in ((left, left + 1 - columns), (left + 1, columns - left)):
            np.add.at(kernel, (row, column), row_weight * weight)
    normalised: NDArray[np.float64] = kernel / kernel.sum()
    return normalised


def _reach(length: float) -> int:
    """Pixels touched to each side of the centre."""
    return math.floor(length / 2) + 1
