"""What counts beside missing or clipped pixels, inside of holes, and in flat areas."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.imaging.dct_shrinkage import without_noise
from aps_core.numerics.likelihood import Pixels

CHANCE = 1e-4
"""That a square of a hole's size is missing, if pixels are missing at random."""
SIDE = 5
"""Of the least hole, in pixels; of narrower ones, a prior knows more than their surroundings."""
POWER = 4
"""Of the share of the values around one that were clipped."""
FLAT, FLAT_REACH = 0.012, 4
"""Deviation, one and a half grey levels, of what is hardly drawn, and how far it is looked for, in
pixels.
"""


def with_known(seen: Pixels, x_BCHW: Tensor, first_BCHW: Tensor) -> Tensor:
    """Pictures ``x`` in which known pixels, beside missing or clipped ones, have only lost their
    noise, as they have in a first estimate, which also fills :func:`holes`. If all are known, they
    stay as they are.
    """
    if seen.missing:
        return without_noise(seen, first_BCHW.where(holes(~seen.known_BCHW), x_BCHW))
    return x_BCHW if bool(seen.known_BCHW.all()) else first_BCHW.where(seen.known_BCHW, x_BCHW)


def holes(missing_BCHW: Tensor) -> Tensor:
    """Which missing pixels (B, C, H, W) belong to squares too large to be missing by chance.

    Nothing near was measured there, and a prior that learned from scattered pixels errs: it expects
    something dark in the empty margin of a page, and more so in every round.
    """
    share = float(missing_BCHW.float().mean())
    if not 0 < share < 1:
        return missing_BCHW
    side = max(SIDE, math.ceil(math.sqrt(math.log(CHANCE) / math.log(share))))
    if side > min(missing_BCHW.shape[2:]):
        return missing_BCHW & False
    squares = 1 - F.max_pool2d((~missing_BCHW).float(), side, stride=1)
    return F.max_pool2d(F.pad(squares, (side - 1,) * 4), side, stride=1) > 0


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


def flat_share(first_BCHW: Tensor) -> Tensor:
    """How flat a first estimate is around every pixel (B, 1, H, W): 1 where it has one colour, less
    the more it varies.

    There a prior has nothing to add, but every pixel it decides by itself errs by itself: paper
    becomes mottled.
    """
    around_BCHW = F.pad(first_BCHW, (FLAT_REACH,) * 4, mode="replicate")

    def mean(x_BCHW: Tensor) -> Tensor:
        return F.avg_pool2d(x_BCHW, 2 * FLAT_REACH + 1, stride=1)

    variance_BCHW = mean(around_BCHW.square()) - mean(around_BCHW).square()
    return torch.exp(-variance_BCHW.amax(1, keepdim=True).clamp(min=0) / FLAT**2)
