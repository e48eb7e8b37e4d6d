"""LPIPS, the learned perceptual image patch similarity (Zhang et al. 2018), with VGG16. Lower is
more similar.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.checkpoints.files import read_tensors
from aps_core.objectives.vgg16_net import CHANNELS, VGG16, load_vgg16


def head_key(stage: int) -> str:
    """Name of a stage's channel weights in the published version 0.1."""
    return f"lin{stage}.model.1.weight"


class LPIPS:
    """Channel-weighted squared distance of unit-normalised VGG16 features, averaged over
    positions.
    """

    def __init__(self, vgg: VGG16, heads: list[Tensor]) -> None:
        self.vgg = vgg
        self.heads = heads

    def __call__(self, x_BCHW: Tensor, truth_BCHW: Tensor) -> Tensor:
        """LPIPS (B,) of pictures (B, 3, H, W) in [-1, 1], at least 16 pixels a side."""
        total_B = x_BCHW.new_zeros(len(x_BCHW))
        for ours, theirs, head in zip(
            self.vgg(x_BCHW), self.vgg(truth_BCHW), self.heads, strict=True
        ):
            difference = (_unit(ours) - _unit(theirs)).square()
            total_B = total_B + F.conv2d(difference, head).flatten(1).mean(1)
        return total_B


def _unit(features_BCHW: Tensor) -> Tensor:
    """Normalises the feature vector at every position to unit length."""
    return features_BCHW / (features_BCHW.square().sum(1, keepdim=True) + 1e-8).sqrt()


def load_lpips(vgg: Path, heads: Path, device: torch.device | str = "cpu") -> LPIPS:
    """Loads the metric from the published VGG16 and the LPIPS channel weights, both safetensors.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: one is damaged or a pickle (as the released channel weights are), or a key
            is missing, unknown or of another shape.
    """
    shapes = {head_key(stage): (1, channels, 1, 1) for stage, channels in enumerate(CHANNELS)}
    tensors = read_tensors(heads, shapes)
    return LPIPS(
        load_vgg16(vgg, device),
        [tensors[head_key(stage)].to(device, torch.float32) for stage in range(len(CHANNELS))],
    )
