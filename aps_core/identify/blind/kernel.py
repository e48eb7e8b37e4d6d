"""Blur kernels (K, K): point spread functions with sum 1 and an odd side."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.identify.blind.thresholds import WEIGHT
from aps_core.operators.base import KERNEL_SIDE, OperatorSpec
from aps_core.operators.kernel_blur import resampled_kernel


def light_of(blur: OperatorSpec) -> Tensor:
    """Kernel of an operator, with a side of ``KERNEL_SIDE`` pixels, or of its support if larger."""
    reach = blur.support.pixels if blur.support else 0
    side = max(KERNEL_SIDE, 2 * reach + 1)
    point_11KK = torch.zeros(1, 1, side, side)
    point_11KK[..., side // 2, side // 2] = 1
    light_KK = blur.bind((1, side, side))(point_11KK)[0, 0].clamp(min=0)
    return light_KK / light_KK.sum()


def enlarged(kernel_KK: Tensor, factor: float) -> Tensor:
    """Kernel scaled by ``factor``."""
    return torch.from_numpy(resampled_kernel(kernel_KK.double().cpu().numpy(), factor)).to(
        kernel_KK
    )


def centred(kernel_KK: Tensor, side: int) -> Tensor:
    """Kernel with its centroid in the middle pixel, cropped or padded to ``side``."""
    down, right = (round(each) for each in _centre(kernel_KK))
    padded = F.pad(kernel_KK, (side,) * 4)
    top = side + kernel_KK.shape[0] // 2 + down - side // 2
    left = side + kernel_KK.shape[1] // 2 + right - side // 2
    cut: Tensor = padded[top : top + side, left : left + side]
    return cut / cut.sum()


def deviation(kernel_KK: Tensor) -> float:
    """Standard deviation in pixels around the centroid: root mean square of both axes."""
    down_K, right_K = _positions(kernel_KK)
    down, right = _centre(kernel_KK)
    squares_KK = (down_K[:, None] - down) ** 2 + (right_K[None] - right) ** 2
    return math.sqrt(float((kernel_KK * squares_KK).sum()) / 2)


def likeness(one_KK: Tensor, other_KK: Tensor) -> float:
    """Largest normalised correlation, at most 1, of two kernels of equal side over all shifts: a
    shifted kernel and an oppositely shifted picture explain a measurement equally well.
    """
    size = [2 * side for side in one_KK.shape]
    spectra = torch.fft.rfft2(one_KK, size) * torch.fft.rfft2(other_KK, size).conj()
    return float(torch.fft.irfft2(spectra, size).max() / one_KK.norm() / other_KK.norm())


def connected(kernel_KK: Tensor, least: float) -> Tensor:
    """Kernel without weights below ``least`` of the largest and without small separate groups: a
    trace is connected.
    """
    kept_KK = torch.where(kernel_KK < least * kernel_KK.max(), 0, kernel_KK)
    bright_KK = kept_KK > 0
    number_N = torch.arange(1, kept_KK.numel() + 1, device=kept_KK.device, dtype=kept_KK.dtype)
    label_KK = number_N.view_as(kept_KK) * bright_KK
    while True:  # every weight takes the largest label among its neighbours
        spread_KK = F.max_pool2d(label_KK[None], 3, stride=1, padding=1)[0] * bright_KK
        if torch.equal(spread_KK, label_KK):
            break
        label_KK = spread_KK
    light_N = kept_KK.new_zeros(kept_KK.numel() + 1)
    light_N.index_add_(0, label_KK.long().flatten(), kept_KK.flatten())
    enough_N = light_N >= WEIGHT.island * light_N.sum()
    enough_N[light_N.argmax()] = True
    kept_KK = kept_KK * enough_N[label_KK.long()]
    return kept_KK / kept_KK.sum()


def _centre(kernel_KK: Tensor) -> tuple[float, float]:
    """Centroid, in pixels below and to the right of the middle pixel."""
    down_K, right_K = _positions(kernel_KK)
    return float((kernel_KK.sum(1) * down_K).sum()), float((kernel_KK.sum(0) * right_K).sum())


def _positions(kernel_KK: Tensor) -> tuple[Tensor, Tensor]:
    """Signed distances of rows and of columns from the middle pixel."""
    down_K, right_K = (torch.arange(n, device=kernel_KK.device) - n // 2 for n in kernel_KK.shape)
    return down_K, right_K
