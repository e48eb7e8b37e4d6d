"""Colourisation: restores colours from luminance."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from aps_core.imaging.images import LUMA
from aps_core.operators.base import Bound, OperatorSpec, Shape, Support

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Colorize(OperatorSpec):
    """The picture is black and white; restore its colours, of which the small embedded priors know
    few. Coloured uploads become grey first.
    """

    type: Literal["colorize"] = "colorize"
    linear: ClassVar[bool] = True

    @property
    def support(self) -> Support:
        """Single pixels."""
        return Support(0)

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        return Bound(_luminance)

    def measurement(self, upload_CHW: Tensor) -> Tensor:
        return _luminance(upload_CHW[None])[0]


def _luminance(x_BCHW: Tensor) -> Tensor:
    """Luminance in three equal channels, so that other operators can follow."""
    red, green, blue = x_BCHW.unbind(1)
    grey_BHW = LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue
    return grey_BHW[:, None].expand(-1, 3, -1, -1)
