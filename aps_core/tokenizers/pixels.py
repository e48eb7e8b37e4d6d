"""A tokenizer without weights: a token is a pixel's brightness and a share of its cell's colour.

A token has six bits. Four are the pixel's brightness, in 16 even levels. The others are one bit of
each of the two colour differences of its cell of 2x2 pixels, which has 16 levels of both (4:2:0, as
in JPEG), finer near grey.

Brightness is linear in the bits, so the decoder of expectations is the expectation of the decoder:
nothing is lost by Eq. 7 of the paper (for colours, nearly nothing).

Shapes: B pictures, C = 3 colours, L tokens on a grid (H, W), D = 6 bits, K = 64 codes, Y = 16
levels of brightness.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.imaging.images import LUMA
from aps_core.tokenizers.quantizers import LookupFreeQuantizer
from aps_core.types import Grid

LEVEL_BITS = 4
"""Bits of a level, of brightness as of a colour difference."""
TOP = 2**LEVEL_BITS - 1
WEIGHTS = tuple(2.0**bit / 2 for bit in reversed(range(LEVEL_BITS)))
"""Of the bits in {-1, +1}, first the most significant: their sum is a level minus ``TOP / 2``."""
GREY = TOP // 2
"""Level of a colour difference of 0."""
CELL = 2
BENT = 2.5
"""Colour differences are ``sinh(BENT v) / sinh(BENT)`` for even v: steps near grey are 0.4 of an
even division's, those of full colours 2.5."""
ROUNDING = 0.3
"""Standard deviation of rounding, in levels."""
LEAST_DEVIATION = 0.02
"""Smallest standard deviation of a brightness in [-1, 1]; levels are 0.13 apart."""


class PixelTokenizer:
    """Implements :class:`aps_core.types.Tokenizer`."""

    stride = 1

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.quantizer = LookupFreeQuantizer(LEVEL_BITS + 2, device)
        self.codebook_KD = self.quantizer.codebook_KD
        self.weights_b = torch.tensor(WEIGHTS, device=device)
        self.levels_Y = torch.arange(TOP + 1, device=device) * 2 / TOP - 1

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Latents (B, D, H, W): how far a value is from the next change of each bit, in levels."""
        height, width = x_BCHW.shape[2:]
        even_BCHW = F.pad(x_BCHW.float(), (0, width % CELL, 0, height % CELL), mode="replicate")
        y_BHW, cells_B2hw = _brightness_and_colour(even_BCHW)
        colours_B2bhw = _margins(cells_B2hw, dim=2)
        colours_B2HW = F.pixel_shuffle(colours_B2bhw.flatten(1, 2), CELL)
        latent_BDHW = torch.cat([_margins((y_BHW + 1) / 2 * TOP, dim=1), colours_B2HW], 1)
        return latent_BDHW[..., :height, :width]

    def feature_maps(self, x_BCHW: Tensor) -> list[Tensor]:
        """The latents."""
        return [self.features(x_BCHW)]

    @torch.no_grad()
    def encode(self, x_BCHW: Tensor) -> Tensor:
        """Pictures in [-1, 1] to codes (B, L) in raster order."""
        return self.quantize(self.features(x_BCHW).flatten(2).transpose(1, 2))[0]

    def quantize(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings (..., D) to codes (...) and embeddings in {-1, +1}."""
        return self.quantizer(e)

    def log_likelihood(self, x_BCHW: Tensor, sigma_BL: Tensor) -> Tensor:
        """Of every brightness (B, L, Y), where pictures are seen with an error of ``sigma_BL``, up
        to a constant.
        """
        y_BL1 = (brightness(x_BCHW).flatten(1)[..., None] + 1) / 2 * TOP
        error_BL1 = ((TOP / 2 * sigma_BL).square() + ROUNDING**2).sqrt()[..., None]
        levels_Y = torch.arange(TOP + 1, device=x_BCHW.device)
        log_p_BLY: Tensor = -((levels_Y - y_BL1) / error_BL1).square() / 2
        return log_p_BLY

    def colours(self, x_BCHW: Tensor, change_B2HW: Tensor) -> Tensor:
        """Pictures without their brightness (B, C, H, W), after a change of both their colour
        differences.
        """
        y_B1HW = brightness(x_BCHW)[:, None]
        colours_BCHW: Tensor = x_BCHW.float() - y_B1HW + coloured(change_B2HW)
        return colours_BCHW

    def decode(self, e_BLD: Tensor, grid: Grid) -> Tensor:
        """Embeddings (B, L, D) to pictures (B, 3, H, W), float32, unclamped."""
        e_BDHW = e_BLD.float().transpose(1, 2).unflatten(2, grid)
        least = (0, max(0, CELL - grid[1]), 0, max(0, CELL - grid[0]))
        e_BDHW = F.pad(e_BDHW, least, mode="replicate")
        rows, columns = (side // CELL * CELL for side in e_BDHW.shape[2:])
        y_BHW = torch.einsum("bdhw,d->bhw", e_BDHW[:, :LEVEL_BITS], self.weights_b) * 2 / TOP
        bits_B8hw = F.pixel_unshuffle(e_BDHW[:, LEVEL_BITS:, :rows, :columns], CELL)
        bits_B2bhw = bits_B8hw.unflatten(1, (2, LEVEL_BITS))
        levels_B2hw = torch.einsum("bcdhw,d->bchw", bits_B2bhw, self.weights_b)
        even_B2hw = (levels_B2hw + TOP / 2 - GREY) / GREY
        cells_B2hw = (BENT * even_B2hw).sinh() / math.sinh(BENT)
        colours_B2HW = F.interpolate(cells_B2hw, scale_factor=CELL)
        # a cell that is cut off has its neighbour's colour
        cut = (0, e_BDHW.shape[3] - columns, 0, e_BDHW.shape[2] - rows)
        x_BCHW: Tensor = y_BHW[:, None] + coloured(F.pad(colours_B2HW, cut, mode="replicate"))
        return x_BCHW[..., : grid[0], : grid[1]]


def mean_and_variance(p: Tensor, levels_Y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (...) of brightness with the given probabilities (..., Y) of its levels.
    The variance is at least ``LEAST_DEVIATION`` squared.
    """
    mean, square = p @ levels_Y, p @ levels_Y.square()
    return mean, (square - mean.square()).clamp(min=LEAST_DEVIATION**2)


def of_codes(y_BLY: Tensor, colour_BL4: Tensor) -> Tensor:
    """Logits of codes (B, L, K) from those of brightness (B, L, 16) and colour bits (B, L, 4)."""
    sums_BLY4 = y_BLY[..., :, None] + colour_BL4[..., None, :]
    return sums_BLY4.flatten(2)


def brightness(x_BCHW: Tensor) -> Tensor:
    """Luma (B, H, W) of pictures."""
    r, g, b = x_BCHW.float().unbind(1)
    y_BHW: Tensor = LUMA[0] * r + LUMA[1] * g + LUMA[2] * b
    return y_BHW


def coloured(differences_B2HW: Tensor) -> Tensor:
    """Pictures (B, C, H, W) of brightness 0 with the given differences of blue and red from it,
    both in [-1, 1].
    """
    blue_BHW, red_BHW = differences_B2HW.unbind(1)
    r = 2 * (1 - LUMA[0]) * red_BHW
    b = 2 * (1 - LUMA[2]) * blue_BHW
    return torch.stack([r, -(LUMA[0] * r + LUMA[2] * b) / LUMA[1], b], 1)


def _brightness_and_colour(x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
    """Brightness (B, H, W), and the levels (B, 2, h, w) of the cells' colour differences."""
    y_BHW = brightness(x_BCHW)
    r, _, b = x_BCHW.float().unbind(1)
    differences = [(b - y_BHW) / (2 - 2 * LUMA[2]), (r - y_BHW) / (2 - 2 * LUMA[0])]
    cells_B2hw = F.avg_pool2d(torch.stack(differences, 1), CELL)
    return y_BHW, GREY * (1 + (cells_B2hw * math.sinh(BENT)).asinh() / BENT)


def _margins(level: Tensor, dim: int) -> Tensor:
    """For levels in [0, TOP]: the distance from the next change of every bit, positive where the
    bit is set; the bits are a new dimension ``dim``.
    """
    # level n is from n to n + 1; halfway between two it counts as the upper one in every bit
    steps = level.clamp(0, TOP) + 0.5 + 1e-4
    margins = []
    for bit in reversed(range(LEVEL_BITS)):
        run = steps / 2**bit
        change = run.round().clamp(1, 2 ** (LEVEL_BITS - bit) - 1)
        margins.append(2**bit * (run - change) * (2 * (change % 2) - 1))
    return torch.stack(margins, dim)
