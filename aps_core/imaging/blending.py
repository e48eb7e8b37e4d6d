"""Blends the generated part of a picture with its known part, without a visible seam and without
changing known pixels.

Pictures (C, H, W) or (B, C, H, W) on any scale; ``known`` (H, W) is 1 where the picture is known,
else 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.imaging.filters import gaussian, separable

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


def filled(x_CHW: Tensor, known_HW: Tensor) -> Tensor:
    """Replaces unknown pixels by averages of known pixels, preferring close ones. Pixels far from
    any known one get the mean of all known pixels; without known pixels, zero.
    """
    result_CHW, left_HW = x_CHW * known_HW, 1 - known_HW
    sigma = 2.0
    while bool(left_HW.any()):
        if sigma > max(known_HW.shape):
            total_C11 = (x_CHW * known_HW).sum((-2, -1), keepdim=True)
            return torch.where(left_HW > 0, total_C11 / known_HW.sum().clamp(min=1), result_CHW)
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
    """Returns ``truth`` where known, else ``drawn``, blended at the boundary.

    The difference on the known side is extended across the boundary and fades out over about
    ``feather`` pixels. The previous content of the unknown part has no effect.
    """
    if feather:
        sigma = feather / 2
        near_HW = _blurred(known_HW[None], sigma)[0]  # 1/2 at a straight boundary
        carried_BCHW = _blurred((truth_CHW - drawn_BCHW) * known_HW, sigma) / near_HW.clamp(
            min=1e-6
        )
        share_HW = (2 * near_HW / _blurred(torch.ones_like(known_HW)[None], sigma)[0]).clamp(max=1)
        drawn_BCHW = drawn_BCHW + share_HW * carried_BCHW
    return torch.where(known_HW > 0, truth_CHW, drawn_BCHW)


def _blurred(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of (..., H, W), truncated at two sigma, with zeros beyond the edges."""
    return separable(x, gaussian(sigma, max(1, int(2 * sigma)), x.dtype, x.device))
