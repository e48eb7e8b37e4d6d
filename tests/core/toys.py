"""Small priors and tokenizers for tests that need no exact posterior (see
:mod:`aps_core.theory.toy` for one).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aps_core.tokenizers.quantizers import LookupFreeQuantizer
from aps_core.types import MASK, Grid


class SignTokenizer:
    """Codes of ``bits`` signs; subclasses decode them."""

    def __init__(self, bits: int, stride: int) -> None:
        self.quantizer = LookupFreeQuantizer(bits)
        self.codebook_KD = self.quantizer.codebook_KD
        self.stride = stride

    def quantize(self, e: Tensor) -> tuple[Tensor, Tensor]:
        return self.quantizer(e)


class MixingTokenizer(SignTokenizer):
    """One pixel per token; a convolutional decoder mixes neighbouring tokens."""

    def __init__(self, bits: int = 4) -> None:
        super().__init__(bits, stride=1)
        self.weight = torch.randn(3, bits, 3, 3, generator=torch.Generator().manual_seed(1)) / 4

    def decode(self, e_BLD: Tensor, grid: Grid) -> Tensor:
        z = e_BLD.transpose(1, 2).reshape(len(e_BLD), -1, *grid)
        return torch.tanh(torch.nn.functional.conv2d(z, self.weight, padding=1))


class BlockTokenizer(SignTokenizer):
    """Decodes each token to a block of 8x8 pixels in one of eight colours."""

    def __init__(self) -> None:
        super().__init__(bits=3, stride=8)

    def decode(self, e_BLD: Tensor, grid: Grid) -> Tensor:
        return (0.7 * e_BLD).mT.unflatten(2, grid).repeat_interleave(8, 2).repeat_interleave(8, 3)

    def features(self, x_BCHW: Tensor) -> Tensor:
        return torch.nn.functional.avg_pool2d(x_BCHW, 8)

    def encode(self, x_BCHW: Tensor) -> Tensor:
        return self.quantize(self.features(x_BCHW).flatten(2).mT)[0]


class PullingPrior:
    """Logits that depend on the decided tokens, which pull the others."""

    def __init__(self, length: int) -> None:
        self.tokenizer: Any = MixingTokenizer()  # without an encoder
        self.codes = len(self.tokenizer.codebook_KD)
        generator = torch.Generator().manual_seed(2)
        self.base = torch.randn(length, self.codes, generator=generator)
        self.pull = torch.randn(self.codes, self.codes, generator=generator)

    def logits(self, z_BL: Tensor, **_: object) -> Tensor:
        one_hot_BLK = torch.nn.functional.one_hot(z_BL.clamp(min=0), self.codes).float()
        decided_BLK = one_hot_BLK * (z_BL != MASK)[..., None]
        return self.base + decided_BLK.mean(1, keepdim=True) @ self.pull


class FlatPrior:
    """A uniform prior over blocks of colours."""

    def __init__(self) -> None:
        self.tokenizer: Any = BlockTokenizer()

    def logits(self, z_BL: Tensor, **_: object) -> Tensor:
        return torch.zeros(*z_BL.shape, len(self.tokenizer.codebook_KD))
