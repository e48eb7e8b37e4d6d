"""A blur as a picture: what it makes of a point of light."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.operators.base import OperatorSpec, Shape

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")

ANY_SHAPE: Shape = (3, 64, 64)
"""A picture from whose measurement it is told whether an operator keeps the size."""


def point_spread(operator: OperatorSpec) -> Tensor | None:
    """The picture (3, H, W) in [-1, 1] of a point of light behind the first blur of a degradation,
    in pixels of the upload, with its brightest pixel white; None if there is no blur.
    """
    for stage in operator.each:
        support, keeps_size = stage.support, stage.image_shape(ANY_SHAPE) == ANY_SHAPE
        if stage.linear and keeps_size and support is not None and support.pixels > 0:
            side = 2 * support.pixels + 1
            point_1CHW = torch.zeros(1, 1, side, side)
            point_1CHW[..., support.pixels, support.pixels] = 1
            spread_CHW = stage.bind((1, side, side))(point_1CHW)[0].clamp(min=0)
            shown_CHW: Tensor = 2 * spread_CHW / spread_CHW.max() - 1
            return shown_CHW.expand(3, -1, -1)
    return None
