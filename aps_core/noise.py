"""Measurement noise on the [-1, 1] scale: adding it, and estimating how much there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor
else:
    torch = lazy_import("torch")

SATURATED = 0.985
"""Values beyond this (about two grey levels from black or white) were probably clipped and carry less noise."""


def add_noise(y: Tensor, sigma: float, generator: Generator) -> Tensor:
    """``y + sigma * noise``, not clipped; sigma 0.05 here is 0.025 on a [0, 1] scale."""
    return y + sigma * torch.randn(y.shape, generator=generator, device=y.device, dtype=y.dtype)


def estimate_sigma(y_CHW: Tensor, weight: Tensor | None = None) -> float:
    """Standard deviation of white Gaussian noise in a picture, on its own scale.

    The second difference in both directions (Immerkaer 1996) cancels smooth image content. Its median
    magnitude over small blocks, and then the lower quartile over blocks, keeps texture out. Saturated
    and unobserved pixels (``weight`` 0) are left out; with too few left the answer is 0.
    """
    y = y_CHW[None].float()
    kernel = torch.tensor([[1.0, -2.0, 1.0], [-2.0, 4.0, -2.0], [1.0, -2.0, 1.0]], device=y.device)
    channels = y.shape[1]
    if min(y.shape[-2:]) < 3:
        return 0.0
    valid = y.abs() < SATURATED
    if weight is not None:
        valid = valid & (weight.expand_as(y) > 0)
    difference = torch.nn.functional.conv2d(y, kernel.expand(channels, 1, 3, 3), groups=channels).abs()
    usable = torch.nn.functional.conv2d(valid.float(), torch.ones(channels, 1, 3, 3, device=y.device), groups=channels) > 8.5
    scale = 6.0 * 0.6745  # the filter's norm, and the median of |N(0, 1)|
    side = 12
    height, width = (n // side * side for n in difference.shape[-2:])
    estimates = []
    if height and width:
        blocks = _blocks(difference[..., :height, :width], side), _blocks(usable[..., :height, :width], side)
        for values, good in zip(*blocks, strict=True):
            if int(good.sum()) >= side * side // 2:
                estimates.append(float(values[good].median()))
    if len(estimates) >= 8:
        ordered = sorted(estimates)
        return ordered[len(ordered) // 4] / scale * _LOW_QUARTILE_OF_BLOCKS
    chosen = difference[usable]
    return float(chosen.median()) / scale if chosen.numel() >= 16 else 0.0


# The lower quartile of block medians lies a little below the true value: for 144 correlated values a
# block's median spreads by about 9 %, so its quartile is 0.94 of the truth.
_LOW_QUARTILE_OF_BLOCKS = 1 / (1 - 0.6745 * 0.09)


def _blocks(t: Tensor, side: int) -> Tensor:
    """(1, C, H, W) to (blocks, side * side)."""
    _, channels, height, width = t.shape
    t = t.view(channels, height // side, side, width // side, side)
    return t.permute(0, 1, 3, 2, 4).reshape(-1, side * side)
