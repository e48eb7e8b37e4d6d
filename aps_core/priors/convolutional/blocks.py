"""Blocks of the convolutional network, at its own resolution and at half of it.

Shapes: B samples, (h, w) positions, C channels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Depthwise convolution, normalisation over channels, two linear layers, plus the input (Liu et
    al. 2022, "A ConvNet for the 2020s").
    """

    def __init__(self, width: int, kernel: int, expansion: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, expansion * width)
        self.narrow = nn.Linear(expansion * width, width)

    def forward(self, x_BhwC: Tensor) -> Tensor:
        """Same shape in and out."""
        x_BChw = x_BhwC.permute(0, 3, 1, 2)  # a view of channels-last memory: no copy
        if x_BhwC.device.type == "cpu":
            # in training, gradients of depthwise convolutions are twice as fast in float32
            with torch.autocast("cpu", enabled=False):
                mixed_BChw = self.mix(x_BChw.to(self.mix.weight.dtype))
        else:
            mixed_BChw = self.mix(x_BChw)
        mixed_BhwC = mixed_BChw.permute(0, 2, 3, 1)
        h: Tensor = self.narrow(F.gelu(self.widen(self.norm(mixed_BhwC))))
        return x_BhwC + h


class Coarse(nn.Module):
    """Blocks for which squares of four positions are one, plus the input: a wider view, and twice
    the weights for a fifth of the time.
    """

    def __init__(
        self, outer_width: int, width: int, blocks: int, kernel: int, expansion: int
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(outer_width)
        self.down = nn.Linear(4 * outer_width, width)
        self.blocks = nn.ModuleList(Block(width, kernel, expansion) for _ in range(blocks))
        self.up = nn.Linear(width, 4 * outer_width)
        nn.init.zeros_(self.up.weight)  # a trained network that gains these answers as before
        nn.init.zeros_(self.up.bias)

    def forward(self, x_BhwC: Tensor) -> Tensor:
        """Same shape in and out; even numbers of rows and columns."""
        x_BChw = self.norm(x_BhwC).permute(0, 3, 1, 2)
        y_BhwC = self.down(F.pixel_unshuffle(x_BChw, 2).permute(0, 2, 3, 1).contiguous())
        for block in self.blocks:
            y_BhwC = block(y_BhwC)
        change_BChw = F.pixel_shuffle(self.up(y_BhwC).permute(0, 3, 1, 2), 2)
        return x_BhwC + change_BChw.permute(0, 2, 3, 1)
