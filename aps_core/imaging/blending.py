"""Joining a drawn part of a picture to the known rest, without a visible seam and without touching
a known pixel.

Pictures (C, H, W) or (B, C, H, W) on any scale; ``known`` (H, W) is 1 where the picture is known,
else 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


def filled(x_CHW: Tensor, known_HW: Tensor) -> Tensor:
    """Unknown pixels become averages of the known ones around them, near ones where there are
    any.
    """
    result_CHW, left_HW = x_CHW * known_HW, 1 - known_HW
    sigma = 2.0
    while bool(left_HW.any()):
        weight_HW = _blurred(known_HW[None], sigma)[0]
        reached_HW = left_HW * (weight_HW > 1e-3)
        result_CHW = torch.where(
            reached_HW > 0,
            _blurred(x_CHW * known_HW, sigma) / weight_HW.clamp(min=1e-3),
            result_CHW,
        )
        left_HW = left_HW - reached_HW
        sigma *= 2
    return result_CHW


def joined(drawn_BCHW: Tensor, truth_CHW: Tensor, known_HW: Tensor, feather: int) -> Tensor:
    """The truth where it is known; elsewhere what was drawn, corrected near the seam.

    The correction is the difference on the known side, carried over the seam: complete there, gone
    some ``feather`` pixels inside. What lay under the mask before plays no part.
    """
    if feather:
        sigma = feather / 2
        near_HW = _blurred(known_HW[None], sigma)[0]  # 1/2 at a straight seam
        carried_BCHW = _blurred((truth_CHW - drawn_BCHW) * known_HW, sigma) / near_HW.clamp(
            min=1e-6
        )
        share_HW = (2 * near_HW / _blurred(torch.ones_like(known_HW)[None], sigma)[0]).clamp(max=1)
        drawn_BCHW = drawn_BCHW + share_HW * carried_BCHW
    return torch.where(known_HW > 0, truth_CHW, drawn_BCHW)


def _blurred(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of (..., H, W) cut at two sigma, nothing beyond the edges."""
    reach = max(1, int(2 * sigma))
    offsets = torch.arange(-reach, reach + 1, dtype=x.dtype, device=x.device)
    line = torch.exp(-offsets.square() / (2 * sigma**2))
    line = line / line.sum()
    flat = x.reshape(-1, 1, *x.shape[-2:])
    flat = torch.nn.functional.conv2d(flat, line.view(1, 1, -1, 1), padding=(reach, 0))
    return torch.nn.functional.conv2d(flat, line.view(1, 1, 1, -1), padding=(0, reach)).view(
        x.shape
    )
