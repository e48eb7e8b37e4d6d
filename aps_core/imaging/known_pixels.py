"""Combines a restoration with measured pixels and a first estimate: near gaps, inside holes, and in
flat areas.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.imaging.dct_shrinkage import without_noise
from aps_core.numerics.likelihood import Pixels

CHANCE = 1e-4
"""Probability below which a missing square is a hole, if pixels are missing at random."""
SIDE = 5
"""Smallest side of a hole, in pixels. In narrower gaps the prior beats the first estimate."""
POWER = 4
"""Exponent of the share of clipped values around a pixel."""
FLAT, FLAT_REACH = 0.012, 4
"""Standard deviation (one and a half grey levels) below which an area counts as flat, and the
distance in pixels over which it is measured.
"""


def with_known(seen: Pixels, x_BCHW: Tensor, first_BCHW: Tensor) -> Tensor:
    """Replaces known pixels of ``x``, if others are missing or clipped, by the denoised
    measurement, and :func:`holes` by the first estimate. If all pixels are known, ``x`` is returned
    unchanged.
    """
    if seen.missing:
        return without_noise(seen, first_BCHW.where(holes(~seen.known_BCHW), x_BCHW))
    return x_BCHW if bool(seen.known_BCHW.all()) else first_BCHW.where(seen.known_BCHW, x_BCHW)


def holes(missing_BCHW: Tensor) -> Tensor:
    """Marks missing pixels (B, C, H, W) in squares too large to be missing by chance.

    Nothing near them was measured, and priors trained on scattered missing pixels fail there: in
    the empty margin of a page they predict something dark, more so in every round.
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
    """Blends ``filled`` into the inside of clipped areas: completely where all values within
    ``reach`` pixels are clipped, else by the fourth power of the share of clipped values.

    Deep inside, no nearby value was measured, and the prior predicts the mean of its training
    pictures: grey for white paper. Near the border it is better informed.
    """
    clipped_BCHW = (~seen.known_BCHW).to(x_BCHW)
    around_BCHW = F.pad(clipped_BCHW, (reach,) * 4, mode="replicate")
    share_BCHW = F.avg_pool2d(around_BCHW, 2 * reach + 1, stride=1) ** POWER
    return x_BCHW.lerp(filled_BCHW, share_BCHW * clipped_BCHW)


def flat_share(first_BCHW: Tensor) -> Tensor:
    """Flatness of a first estimate around every pixel (B, 1, H, W): 1 where it has one colour, less
    the more it varies.

    In flat areas the prior has nothing to add, but its independent errors per pixel would make
    paper look mottled.
    """
    around_BCHW = F.pad(first_BCHW, (FLAT_REACH,) * 4, mode="replicate")

    def mean(x_BCHW: Tensor) -> Tensor:
        return F.avg_pool2d(x_BCHW, 2 * FLAT_REACH + 1, stride=1)

    variance_BCHW = mean(around_BCHW.square()) - mean(around_BCHW).square()
    return torch.exp(-variance_BCHW.amax(1, keepdim=True).clamp(min=0) / FLAT**2)
