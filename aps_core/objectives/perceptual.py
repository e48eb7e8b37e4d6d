"""Feature extractors for perceptual distances.

A :data:`Features` function maps pictures (B, 3, H, W) in [-1, 1] to a list of feature maps. The
distance is the sum over maps of the mean squared difference.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from aps_core.types import Tokenizer

Features = Callable[[Tensor], list[Tensor]]


def tokenizer_features(tokenizer: Tokenizer) -> Features:
    """The tokenizer's own encoder as feature extractor. Not LPIPS, and not comparable with it."""

    def features(x_BCHW: Tensor) -> list[Tensor]:
        height, width = (size % tokenizer.stride for size in x_BCHW.shape[-2:])
        pad = ((tokenizer.stride - width) % tokenizer.stride, (tokenizer.stride - height) % tokenizer.stride)
        return [torch.tanh(tokenizer.features(torch.nn.functional.pad(x_BCHW, (0, pad[0], 0, pad[1]), mode="replicate")))]

    return features
