"""Areas in which every value was clipped."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from aps_core.likelihood import Pixels

SIDE = 5
"""Of the square around a value, in pixels."""
POWER = 4
"""Of the share of a square that was clipped."""


def inside_clipped(seen: Pixels, x_BCHW: Tensor, filled_BCHW: Tensor) -> Tensor:
    """Pictures ``x`` with ``filled`` inside of clipped areas.

    There no near value was measured: what a prior expects is the mean of all its pictures, grey for
    white paper. At their borders it knows more.
    """
    clipped_BCHW = (~seen.known_BCHW).to(x_BCHW)
    around_BCHW = F.pad(clipped_BCHW, (SIDE // 2,) * 4, mode="replicate")
    share_BCHW = F.avg_pool2d(around_BCHW, SIDE, stride=1) ** POWER
    return x_BCHW.lerp(filled_BCHW, share_BCHW * clipped_BCHW)
