"""The convolutional part of VGG16 (Simonyan & Zisserman 2015), with outputs at the layers used by
LPIPS.

Plain torch, with the parameter names of the published ImageNet checkpoint (``features.N.weight``).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from aps_core.checkpoints.files import read_tensors
from aps_core.errors import InvalidSpec

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of convolutions of every stage. 2x2 max pooling separates the stages."""
CHANNELS = tuple(channels for channels, _ in STAGES)
IMAGE_MEAN = (0.485, 0.456, 0.406)
IMAGE_STD = (0.229, 0.224, 0.225)
"""Statistics of the training pictures on the [0, 1] scale."""


class MaxPool(nn.Module):
    """2x2 max pooling with a deterministic gradient on GPUs. An odd last row or column is
    dropped.
    """

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Maps (B, C, H, W) to (B, C, H // 2, W // 2)."""
        height, width = (size // 2 * 2 for size in x_BCHW.shape[-2:])
        pooled: Tensor = (
            x_BCHW[..., :height, :width]
            .unflatten(-1, (-1, 2))
            .unflatten(-3, (-1, 2))
            .amax((-3, -1))
        )
        return pooled


class VGG16(nn.Module):
    """Maps pictures (B, 3, H, W) in [-1, 1] to the last activation of every stage: relu1_2, 2_2,
    3_3, 4_3, 5_3.
    """

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        self.taps: list[int] = []
        c_in = 3
        for stage, (channels, depth) in enumerate(STAGES):
            if stage:
                layers.append(MaxPool())
            for _ in range(depth):
                layers += [nn.Conv2d(c_in, channels, 3, padding=1), nn.ReLU()]
                c_in = channels
            self.taps.append(len(layers) - 1)
        self.features = nn.Sequential(*layers)
        # not in the checkpoint, so allocated for real even if the network is on the meta device
        self.register_buffer(
            "mean", torch.tensor(IMAGE_MEAN, device="cpu").view(3, 1, 1), persistent=False
        )
        self.register_buffer(
            "std", torch.tensor(IMAGE_STD, device="cpu").view(3, 1, 1), persistent=False
        )

    def forward(self, x_BCHW: Tensor) -> list[Tensor]:
        """Feature maps (B, C, h, w), float32, finest first.

        Raises:
            InvalidSpec: a side has fewer than 16 pixels, too few for four pooling layers.
        """
        if min(x_BCHW.shape[-2:]) < 16:
            raise InvalidSpec(
                "VGG16 features need 16 pixels on every side; the measurement is"
                f" {x_BCHW.shape[-1]}x{x_BCHW.shape[-2]}."
            )
        h = (((x_BCHW + 1) / 2 - self.mean) / self.std).to(next(self.parameters()).dtype)
        maps = []
        for index, layer in enumerate(self.features):
            h = layer(h)
            if index in self.taps:
                maps.append(h.float())
        return maps


def load_vgg16(
    path: Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> VGG16:
    """Loads a published VGG16 (safetensors) without the classifier.

    Raises:
        WeightsMissing: the file is absent.
        WeightsInvalid: it is damaged or a pickle, or a key is missing, unknown or of another shape.
    """
    with torch.device("meta"):
        net = VGG16()
    shapes = {key: value.shape for key, value in net.state_dict().items()}
    tensors = read_tensors(
        path, shapes, ignore=("classifier.", "pre_logits.", "head."), device=device, dtype=dtype
    )
    net.load_state_dict(tensors, assign=True)
    return net.to(device).eval().requires_grad_(False)
