"""Measurement noise on the [-1, 1] scale: simulation and estimation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aps_core._lazy import lazy_import
from aps_core.imaging.jpeg_noise import noise_before_jpeg
from aps_core.imaging.noise_level import QUANTISATION, estimate_noise

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

    from aps_core.imaging.images import Picture
else:
    torch = lazy_import("torch")


def add_noise(y: Tensor, sigma: float, generator: Generator) -> Tensor:
    """``y + sigma * noise``, not clipped. A sigma of 0.05 here equals 0.025 on a [0, 1] scale."""
    return y + sigma * torch.randn(y.shape, generator=generator, device=y.device, dtype=y.dtype)


def add_poisson(y: Tensor, peak: float, generator: Generator) -> Tensor:
    """Simulates photon counts of ``y``: ``peak`` photons on average for white, 0 for black. Not
    clipped above.
    """
    return torch.poisson(_counts(y, peak).to("cpu"), generator=generator).to(y) * (2 / peak) - 1


def poisson_sigma(y: Tensor, peak: float) -> Tensor:
    """Standard deviation of every value's photon noise, estimated from the noisy value as the root
    of its count.

    Counts are floored at 1 to bound the weight of black pixels.
    """
    return _counts(y, peak).clamp(min=1).sqrt() * (2 / peak)


def _counts(y: Tensor, peak: float) -> Tensor:
    return (y.clamp(min=-1) + 1) * (peak / 2)


def least_sigma(picture: Picture, scale: float = 1.0) -> float:
    """Lower bound on the noise of a picture: the rounding error of 8 bits (0 for 16 bits); for a
    JPEG at least the noise before compression, which the pixels no longer show.

    Args:
        picture: the upload.
        scale: factor by which the sides are reduced, which averages the noise.
    """
    if picture.image.mode == "I;16":
        return 0.0
    before = 0.0
    if picture.jpeg_steps is not None:
        before = noise_before_jpeg(np.asarray(picture.rgb()), picture.jpeg_steps)
    return max(QUANTISATION, scale * before)


def estimate_sigma(y_CHW: Tensor, weight: Tensor | None = None) -> float:
    """Standard deviation of white Gaussian noise in a picture, where ``weight`` is not 0; see
    :func:`aps_core.imaging.noise_level.estimate_noise`.
    """
    observed = None if weight is None else weight.expand(1, *y_CHW.shape)[0].cpu().numpy() > 0
    return estimate_noise(y_CHW.detach().double().cpu().numpy(), observed)
