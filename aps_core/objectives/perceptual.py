"""Feature extractors for perceptual distances.

A :data:`aps_core.types.Features` function maps pictures (B, 3, H, W) in [-1, 1] to a list of
feature maps. The distance is the sum over maps of the mean squared difference. The paper only says
"VGG". Here it is VGG16 at the five layers of LPIPS, unnormalised; this gives the distance a
magnitude at which the paper's weight of 1e-3 has an effect. Without VGG16 weights, the tokenizer's
own encoder is used.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aps_core.checkpoints import checkpoint_cache
from aps_core.errors import InvalidSpec
from aps_core.imaging.resampling import edge_pad
from aps_core.objectives.vgg16_net import load_vgg16
from aps_core.types import Features, Tokenizer


def tokenizer_features(tokenizer: Tokenizer) -> Features:
    """The tokenizer's own encoder as feature extractor. Not LPIPS, and not comparable with it."""

    def features(x_BCHW: Tensor) -> list[Tensor]:
        height, width = x_BCHW.shape[-2:]
        padded = edge_pad(x_BCHW, -height % tokenizer.stride, -width % tokenizer.stride)
        return [torch.tanh(tokenizer.features(padded))]

    return features


def perceptual_features(kind: str, tokenizer: Tokenizer, device: torch.device) -> Features:
    """Returns the extractor named ``kind``; never substitutes another one.

    Raises:
        InvalidSpec: no extractor has that name.
        WeightsMissing, WeightsInvalid: VGG16 is requested, but its file is absent or damaged.
    """
    if kind == "tokenizer":
        return tokenizer_features(tokenizer)
    if kind != "vgg16":
        raise InvalidSpec(f"There are no features {kind!r}; known: tokenizer, vgg16.")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return load_vgg16(checkpoint_cache.path("vgg16") / "model.safetensors", device, dtype)
