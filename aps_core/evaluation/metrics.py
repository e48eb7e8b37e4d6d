"""Image fidelity metrics on [-1, 1] pictures: PSNR, SSIM, gradient energy.

All return one value per picture, shape (B,).
"""

from __future__ import annotations

import torch
from torch import Tensor

from aps_core.imaging.filters import gaussian, separable
from aps_core.imaging.resampling import mirror_pad

REACH = 5
"""Pixels that the window of SSIM covers to each side."""


def psnr(x_BCHW: Tensor, truth_BCHW: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, after clipping to [-1, 1] (peak-to-peak 2)."""
    mse = (x_BCHW.clamp(-1, 1) - truth_BCHW.clamp(-1, 1)).square().flatten(1).mean(1)
    return 10 * torch.log10(4 / mse)


def ssim(x_BCHW: Tensor, truth_BCHW: Tensor) -> Tensor:
    """Structural similarity with an 11-pixel Gaussian window of sigma 1.5 (Wang et al. 2004), mean
    over RGB, mirrored at the border pixels.
    """
    window = gaussian(1.5, REACH, x_BCHW.dtype, x_BCHW.device)

    def blur(t_BCHW: Tensor) -> Tensor:
        padded = mirror_pad(t_BCHW, (REACH, REACH), (REACH, REACH))
        return separable(padded, window)[..., REACH:-REACH, REACH:-REACH]

    x, y = x_BCHW.clamp(-1, 1), truth_BCHW.clamp(-1, 1)
    moments = blur(torch.cat([x, y, x * x, y * y, x * y], dim=1))
    mx, my, xx, yy, xy = moments.chunk(5, dim=1)
    c1, c2 = (0.01 * 2) ** 2, (0.03 * 2) ** 2
    luminance = (2 * mx * my + c1) / (mx * mx + my * my + c1)
    structure = (2 * (xy - mx * my) + c2) / ((xx - mx * mx) + (yy - my * my) + c2)
    similarity: Tensor = (luminance * structure).flatten(1).mean(1)
    return similarity


def gradient_energy(x_BCHW: Tensor) -> Tensor:
    """Mean squared difference of neighbouring pixels; a measure of fine detail."""
    x = x_BCHW.clamp(-1, 1)
    return x.diff(dim=-1).square().flatten(1).mean(1) + x.diff(dim=-2).square().flatten(1).mean(1)
