"""Style and content of a picture, measured in features of the prior's own image encoder. Needs no
further weights.

Style is the position-independent part of a feature map: mean and covariance of its channels (Gatys
et al. 2016, "Image Style Transfer Using Convolutional Neural Networks", whose Gram matrix combines
both). Content is the feature map after normalising these statistics (Huang & Belongie 2017,
"Arbitrary Style Transfer in Real-time with Adaptive Instance Normalization"). An encoder trained
for compression represents colour, texture and strokes; the result is not CSD and not comparable
with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from aps_core.imaging.resampling import resize
from aps_core.types import Objective, Tokenizer


class GramStyle:
    """Distance between the style of the picture and of a reference; see
    :class:`aps_core.types.Objective`.

    For every feature map (the first is the picture itself), the squared differences of mean and
    covariance are divided by the reference's variance and covariance. The misfit is the root of
    their mean over the maps. It is 0 for the reference itself, and 1 if the statistics differ by as
    much as the reference's own magnitude.
    """

    def __init__(self, tokenizer: Tokenizer, reference_CHW: Tensor) -> None:
        self.tokenizer = tokenizer
        self.noise_floor = self.temperature = 0.0
        with torch.no_grad():
            self.target = [
                statistics(f)
                for f in self._maps(whole_tokens(reference_CHW, tokenizer.stride)[None])
            ]

    def __call__(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and misfit per sample, each (B,)."""
        distances = [
            (mean_BC - mean_1C).square().sum(1)
            / cov_1CC.diagonal(dim1=1, dim2=2).sum(1).clamp(min=1e-6)
            + (cov_BCC - cov_1CC).square().sum((1, 2))
            / cov_1CC.square().sum((1, 2)).clamp(min=1e-6)
            for (mean_BC, cov_BCC), (mean_1C, cov_1CC) in zip(
                map(statistics, self._maps(x_BCHW)), self.target, strict=True
            )
        ]
        squared_B = torch.stack(distances).mean(0)
        return squared_B * math.prod(x_BCHW.shape[1:]), squared_B.detach().sqrt()

    def _maps(self, x_BCHW: Tensor) -> list[Tensor]:
        return [x_BCHW, *self.tokenizer.feature_maps(x_BCHW)]


class Content:
    """Distance between the structure of the picture and of another picture, in the deepest feature
    map with every channel normalised to mean 0 and deviation 1.

    The misfit is half the mean squared difference, which equals 1 - correlation: 0 for the picture
    itself, about 1 for an unrelated one.
    """

    def __init__(self, tokenizer: Tokenizer, content_CHW: Tensor) -> None:
        """``content_CHW`` must have the size of the pictures it is compared with."""
        self.tokenizer = tokenizer
        self.noise_floor = self.temperature = 0.0
        with torch.no_grad():
            self.target = self._structure(content_CHW[None])

    def __call__(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and misfit per sample, each (B,)."""
        distance_B = (self._structure(x_BCHW) - self.target).square().flatten(1).mean(1) / 2
        return distance_B * math.prod(x_BCHW.shape[1:]), distance_B.detach()

    def _structure(self, x_BCHW: Tensor) -> Tensor:
        f_BCN = self.tokenizer.feature_maps(x_BCHW)[-1].flatten(2)
        centred_BCN = f_BCN - f_BCN.mean(2, keepdim=True)
        return centred_BCN / (centred_BCN.square().mean(2, keepdim=True) + 1e-6).sqrt()


class WeightedSum:
    """Weighted sum of several objectives. The misfit is the first one's."""

    def __init__(self, parts: Sequence[tuple[float, Objective]]) -> None:
        self.parts = parts
        self.noise_floor = self.temperature = 0.0

    def __call__(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and misfit per sample, each (B,)."""
        weights, objectives = zip(*self.parts, strict=True)
        losses, misfits = zip(*(objective(x_BCHW) for objective in objectives), strict=True)
        weighted = [weight * loss_B for weight, loss_B in zip(weights, losses, strict=True)]
        return torch.stack(weighted).sum(0), misfits[0]


def statistics(f_BCHW: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (B, C) and covariance (B, C, C) of the channels over all positions."""
    f_BCN = f_BCHW.float().flatten(2)
    mean_BC1 = f_BCN.mean(2, keepdim=True)
    centred_BCN = f_BCN - mean_BC1
    return mean_BC1[..., 0], centred_BCN @ centred_BCN.mT / f_BCN.shape[2]


def whole_tokens(x_CHW: Tensor, stride: int) -> Tensor:
    """Crops the picture to whole tokens; a picture smaller than one token is enlarged first."""
    height, width = (max(stride, size) for size in x_CHW.shape[1:])
    if (height, width) != x_CHW.shape[1:]:
        x_CHW = resize(x_CHW, (height, width))
    return x_CHW[:, : height // stride * stride, : width // stride * stride]
