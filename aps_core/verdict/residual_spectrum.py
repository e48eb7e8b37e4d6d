"""Residual of the best-fitting picture by frequency band.

A wrong blur suppresses frequencies that the true one passed, for example along a wrong direction of
movement, so no picture explains them. They are a small part of the measurement and hardly change
its overall misfit.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from aps_core.verdict.thresholds import VERDICT

RINGS = (0.03, 0.08, 0.14, 0.22, 0.32, 0.5)
"""Bounds of the rings of frequencies, in cycles per pixel."""
DIRECTIONS = 12
"""Number of sectors of a ring; opposite directions belong to one sector."""
LEAST_BINS = 10
"""Fewest frequencies of a band; the mean power of fewer varies too much."""
BORDER = 8
"""Divisor of the shorter side that gives the ignored border, which depends on what lies outside."""
SMALLEST = 32
"""Shorter side in pixels below which a measurement is not split into bands."""


def unexplained(
    residual_CHW: Tensor, y_CHW: Tensor, noise_CHW: Tensor, weight_CHW: Tensor
) -> float:
    """Largest residual of any band, relative to noise and to the share of power that need not be
    explained; the root mean square over all values if the measurement is too small for bands.

    Args:
        residual_CHW: measurement minus its best explanation.
        y_CHW: the measurement.
        noise_CHW: standard deviation of the noise of every value, > 0.
        weight_CHW: 1 where a value was observed, else 0.
    """
    observed = float(weight_CHW.mean())
    errors_CHW = residual_CHW / noise_CHW * weight_CHW
    height, width = y_CHW.shape[1:]
    if min(height, width) < SMALLEST:
        return math.sqrt(float(errors_CHW.square().mean()) / observed)
    margin = min(height, width) // BORDER
    inner = (slice(None), slice(margin, height - margin), slice(margin, width - margin))
    left_HF, measured_HF = (
        _power(values[inner]) / observed for values in (errors_CHW, y_CHW / noise_CHW * weight_CHW)
    )
    bands_NHF = _bands(height - 2 * margin, width - 2 * margin).to(left_HF)
    left_N, measured_N = (
        (bands_NHF * power_HF).sum((1, 2)) / bands_NHF.sum((1, 2))
        for power_HF in (left_HF, measured_HF)
    )
    return math.sqrt(float((left_N / (1 + (1 - VERDICT.modelled) * measured_N)).max()))


def _power(values_CHW: Tensor) -> Tensor:
    """Power spectrum (H, W // 2 + 1), mean over channels; that of white noise is its variance."""
    height, width = values_CHW.shape[1:]
    down, right = (
        torch.hann_window(side + 2, periodic=False, device=values_CHW.device)[1:-1]
        for side in (height, width)
    )
    window_HW = torch.outer(down, right)
    centred_CHW = values_CHW - values_CHW.mean((1, 2), keepdim=True)
    spectrum_CHF = torch.fft.rfft2(centred_CHW * window_HW / window_HW.norm())
    power_HF: Tensor = spectrum_CHF.abs().square().mean(0)
    return power_HF


def _bands(height: int, width: int) -> Tensor:
    """Membership of the frequencies in each band, (N, H, W // 2 + 1)."""
    down, right = torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)[None]
    radius_HF = torch.hypot(down, right)
    degrees_HF = torch.atan2(down, right).rad2deg()
    bands = []
    for low, high in pairwise(RINGS):
        ring_HF = (radius_HF >= low) & (radius_HF < high)
        for number in range(DIRECTIONS):
            turn_HF = (degrees_HF - number * 180 / DIRECTIONS + 90) % 180 - 90
            bands.append(ring_HF & (turn_HF.abs() <= 90 / DIRECTIONS))
    return torch.stack([band for band in bands if int(band.sum()) >= LEAST_BINS])
