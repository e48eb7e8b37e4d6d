"""What counts beside missing and clipped pixels, and inside of clipped areas."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from aps_core.imaging.dct_shrinkage import without_noise
from aps_core.likelihood import Pixels

POWER = 4
"""Of the share of the values around one that were clipped."""


def with_known(seen: Pixels, x_BCHW: Tensor, first_BCHW: Tensor) -> Tensor:
    """Pictures ``x`` in which known pixels, beside missing or clipped ones, have only lost their
    noise, as they have in a first estimate. If all are known, they stay as they are.
    """
    if seen.missing:
        return without_noise(seen, x_BCHW)
    return x_BCHW if bool(seen.known_BCHW.all()) else first_BCHW.where(seen.known_BCHW, x_BCHW)


def inside_clipped(seen: Pixels, x_BCHW: Tensor, filled_BCHW: Tensor, reach: int) -> Tensor:
    """Pictures ``x`` with ``filled`` inside of clipped areas, farther than ``reach`` pixels from
    any border; nearer, in proportion to the fourth power of the share of clipped values in reach.

    There no near value was measured: what a prior expects is the mean of all its pictures, grey for
    white paper. At their borders it knows more.
    """
    clipped_BCHW = (~seen.known_BCHW).to(x_BCHW)
    around_BCHW = F.pad(clipped_BCHW, (reach,) * 4, mode="replicate")
    share_BCHW = F.avg_pool2d(around_BCHW, 2 * reach + 1, stride=1) ** POWER
    return x_BCHW.lerp(filled_BCHW, share_BCHW * clipped_BCHW)
