"""Image fidelity metrics on [-1, 1] pictures: PSNR, SSIM, gradient energy.

All return one value per picture, shape (B,).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def psnr(x_BCHW: Tensor, truth_BCHW: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, after clipping to [-1, 1] (peak-to-peak 2)."""
    mse = (x_BCHW.clamp(-1, 1) - truth_BCHW.clamp(-1, 1)).square().flatten(1).mean(1)
    return 10 * torch.log10(4 / mse)


def ssim(x_BCHW: Tensor, truth_BCHW: Tensor) -> Tensor:
    """Structural similarity with an 11-pixel Gaussian window of sigma 1.5 (Wang et al. 2004), mean
    over RGB, reflect-padded.
    """
    channels = x_BCHW.shape[1]
    offsets = torch.arange(11, dtype=x_BCHW.dtype, device=x_BCHW.device) - 5
    window = torch.exp(-offsets.square() / (2 * 1.5**2))
    window = window / window.sum()

    def blur(t: Tensor) -> Tensor:
        t = F.conv2d(
            F.pad(t, (5, 5, 0, 0), mode="reflect"),
            window.view(1, 1, 1, -1).expand(t.shape[1], 1, 1, -1),
            groups=t.shape[1],
        )
        return F.conv2d(
            F.pad(t, (0, 0, 5, 5), mode="reflect"),
            window.view(1, 1, -1, 1).expand(t.shape[1], 1, -1, 1),
            groups=t.shape[1],
        )

    x, y = x_BCHW.clamp(-1, 1), truth_BCHW.clamp(-1, 1)
    moments = blur(torch.cat([x, y, x * x, y * y, x * y], dim=1))
    mx, my, xx, yy, xy = moments.split(channels, dim=1)
    c1, c2 = (0.01 * 2) ** 2, (0.03 * 2) ** 2
    luminance = (2 * mx * my + c1) / (mx * mx + my * my + c1)
    structure = (2 * (xy - mx * my) + c2) / ((xx - mx * mx) + (yy - my * my) + c2)
    similarity: Tensor = (luminance * structure).flatten(1).mean(1)
    return similarity


def gradient_energy(x_BCHW: Tensor) -> Tensor:
    """Mean squared difference of neighbouring pixels; a measure of fine detail."""
    x = x_BCHW.clamp(-1, 1)
    return x.diff(dim=-1).square().flatten(1).mean(1) + x.diff(dim=-2).square().flatten(1).mean(1)
