"""A blur that varies over the picture and saturates. Needs no weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.operators.base import Bound, OperatorSpec, Shape
from aps_core.operators.gaussian_blur import GaussianBlur

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")

LEVELS = 4
"""Number of blur levels, of width 0, 1/3, 2/3 and 1 times sigma. Pixels blend two adjacent
levels.
"""


class SaturatingBlur(OperatorSpec):
    """Sharp at a focus point and increasingly blurred away from it; highlights spread before the
    sensor clips them.
    """

    type: Literal["saturating_blur"] = "saturating_blur"
    sigma: float = Field(
        3.0,
        ge=0.03,
        le=200,
        description=(
            "Width of the blur where it is strongest, in pixels of the upload. 3.0 is for 512-pixel"
            " pictures; at 128 use 1.5."
        ),
    )
    focus_x: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Horizontal position of the focus point as a fraction of the width.",
    )
    focus_y: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Vertical position of the focus point as a fraction of the height.",
    )
    highlights: float = Field(
        2.0,
        ge=1,
        le=8,
        description=(
            "Brightness of a white pixel before clipping, relative to the displayed white; 1"
            " means no clipping."
        ),
    )
    lengths: ClassVar[tuple[str, ...]] = ("sigma",)

    def check_shape(self, shape_CHW: Shape) -> None:
        """The picture must be larger than the widest blur."""
        _blur(self.sigma).check_shape(shape_CHW)

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        shares_LHW = self._shares(shape_CHW[1], shape_CHW[2]).to(device)
        blurs = [
            _blur(self.sigma * level / (LEVELS - 1)).bind(shape_CHW, device)
            for level in range(1, LEVELS)
        ]

        def blur(x_BCHW: Tensor) -> Tensor:
            shown = (x_BCHW + 1) / 2
            # only bright pixels exceed the displayed range
            light = shown + (self.highlights - 1) * shown**4
            spread = light * shares_LHW[0].to(light.dtype)
            for share_HW, gaussian in zip(shares_LHW[1:], blurs, strict=True):
                spread = spread + gaussian(light) * share_HW.to(light.dtype)
            return 2 * spread - 1

        return Bound(blur, clips=True)

    def _shares(self, height: int, width: int) -> Tensor:
        """Weight (levels, H, W) of every blur level at every pixel; sums to 1 over levels. The blur
        is strongest at the corner farthest from the focus.
        """
        rows, columns = (
            torch.arange(height) - self.focus_y * (height - 1),
            torch.arange(width) - self.focus_x * (width - 1),
        )
        distance_HW = torch.hypot(rows[:, None], columns[None, :])
        level_HW = distance_HW / distance_HW.max().clamp(min=1) * (LEVELS - 1)
        return torch.stack([(1 - (level_HW - level).abs()).clamp(min=0) for level in range(LEVELS)])


def _blur(sigma: float) -> GaussianBlur:
    """A blur of this width, or of the least one, which changes nothing."""
    return GaussianBlur(sigma=max(0.01, sigma))
