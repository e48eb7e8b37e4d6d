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
    and unobserved pixels (``weight`` 0) are left out. Where too few complete neighbourhoods remain (single
    pixels missing), three observed pixels in a row do instead; with too few of those the answer is 0.
    """
    y = y_CHW[None].float()
    valid = y.abs() < SATURATED
    if weight is not None:
        valid = valid & (weight.expand_as(y) > 0)
    line = torch.tensor([1.0, -2.0, 1.0], device=y.device)
    difference, usable = _filtered(y, valid, line[:, None] * line)
    estimates = [float(values[good].median()) for values, good in zip(_blocks(difference), _blocks(usable), strict=True) if good.sum() >= SIDE**2 // 2]
    if len(estimates) >= 8:
        return sorted(estimates)[len(estimates) // 4] / (6 * MEDIAN) * LOW_QUARTILE_OF_BLOCKS
    if usable.sum() >= 16:
        return float(difference[usable].median()) / (6 * MEDIAN)
    rows, columns = _filtered(y, valid, line[None]), _filtered(y, valid, line[:, None])
    chosen = torch.cat([d[good] for d, good in (rows, columns)])
    return float(chosen.quantile(0.25)) / (6**0.5 * QUARTILE) if chosen.numel() >= 16 else 0.0


MEDIAN, QUARTILE = 0.6745, 0.3186
"""Median and lower quartile of |N(0, 1)|."""
SIDE = 12
"""Side of a block in pixels."""
LOW_QUARTILE_OF_BLOCKS = 1 / (1 - MEDIAN * 0.09)
"""The lower quartile of block medians lies a little below the truth: a median of 144 correlated values spreads by about 9 %."""


def _filtered(y: Tensor, valid: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """(magnitude of the filter's answer, whether every pixel under it was valid), both (1, C, H', W')."""
    channels = y.shape[1]
    if y.shape[-2] < kernel.shape[0] or y.shape[-1] < kernel.shape[1]:
        return y.new_zeros(1, channels, 0, 0), valid.new_zeros(1, channels, 0, 0)
    answer = torch.nn.functional.conv2d(y, kernel.expand(channels, 1, *kernel.shape), groups=channels).abs()
    complete = torch.nn.functional.conv2d(valid.float(), torch.ones_like(kernel).expand(channels, 1, *kernel.shape), groups=channels)
    return answer, complete > kernel.numel() - 0.5


def _blocks(t: Tensor) -> Tensor:
    """(1, C, H, W) to (blocks, SIDE * SIDE); what does not fill a block is left out."""
    channels, down, across = t.shape[1], t.shape[2] // SIDE, t.shape[3] // SIDE
    t = t[0, :, : down * SIDE, : across * SIDE].reshape(channels, down, SIDE, across, SIDE)
    return t.permute(0, 1, 3, 2, 4).reshape(-1, SIDE * SIDE)
