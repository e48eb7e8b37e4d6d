"""Measurement noise on the [-1, 1] scale: simulation and estimation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor
else:
    torch = lazy_import("torch")

SATURATED = 0.985
"""Larger absolute values (within about two grey levels of black or white) were probably clipped and
carry less noise.
"""
TILE = 32
"""Side in pixels of the tiles in which noise is estimated; tiles overlap by half."""
LOW_DECILE = 0.95
"""Tenth percentile of the tiles' estimates in a picture of pure noise, relative to the true
deviation.
"""


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


def estimate_sigma(y_CHW: Tensor, weight: Tensor | None = None) -> float:
    """Standard deviation of white Gaussian noise in a picture, on the picture's scale.

    Small patches of a clean picture lie near a subspace, but noise is isotropic. The smallest
    eigenvalues of the patches' covariance therefore equal the noise variance (Chen, Zhu and Heng
    2015). Patches include all colours, whose details are correlated. The lowest decile over tiles
    excludes texture. Saturated and unobserved pixels (``weight`` 0) are ignored; if single pixels
    are missing, a patch consists of three observed pixels in a row. The result is 0 if too few
    patches remain.

    Noise must be independent between pixels and, unless the picture is grey, between colours. JPEG
    compression after the noise violates both; specify sigma in that case.
    """
    y, valid = _usable(y_CHW.float(), weight)
    tiles = [
        covariance
        for patches, complete in _bands(y, valid)
        for covariance in _covariances(patches, complete)
    ]
    if len(tiles) >= 4:
        return float(_noise_variance(torch.stack(tiles)).sqrt().quantile(0.1)) / LOW_DECILE
    for shapes in (((3, 3),), ((1, 3), (3, 1))):
        pairs = [_patches(y, valid, shape) for shape in shapes]
        chosen = torch.cat([patches[:, complete] for patches, complete in pairs], dim=1)
        if chosen.shape[1] >= 10 * chosen.shape[0]:
            return float(_noise_variance(torch.cov(chosen)[None]).sqrt())
    return 0.0


def _usable(y_CHW: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Channels used for the estimate, and mask (H, W) of pixels where all of them are observed and
    not saturated.
    """
    valid = y_CHW.abs() < SATURATED
    if weight is not None:
        valid = valid & (weight.expand(1, *y_CHW.shape)[0] > 0)
    if torch.equal(y_CHW, y_CHW[:1].expand_as(y_CHW)):  # grey: one channel is enough
        y_CHW, valid = y_CHW[:1], valid[:1]
    counts = valid.sum((1, 2))
    # in a picture of saturated colours, a channel can be clipped everywhere
    kept = counts * 2 >= counts.max()
    return y_CHW[kept], valid[kept].all(0)


def _patches(y_CHW: Tensor, valid_HW: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Every patch as a column, (C * kh * kw, H', W'), and whether all its pixels are valid, (H',
    W').
    """
    height, width = y_CHW.shape[1] - shape[0] + 1, y_CHW.shape[2] - shape[1] + 1
    if height < 1 or width < 1:
        return y_CHW.new_zeros(len(y_CHW) * shape[0] * shape[1], 0, 0), valid_HW.new_zeros(0, 0)
    patches = torch.nn.functional.unfold(y_CHW[None], shape)[0].view(-1, height, width)
    complete = (
        torch.nn.functional.unfold(valid_HW[None, None].float(), shape)[0]
        .amin(0)
        .view(height, width)
        > 0
    )
    return patches, complete


def _bands(y_CHW: Tensor, valid_HW: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """3x3 patches of one row of tiles at a time, which limits memory: values (D, tiles, n) and
    validity (tiles, n).
    """
    side = TILE + 2
    if min(valid_HW.shape) < side:
        return
    for top in range(0, valid_HW.shape[0] - side + 1, TILE // 2):
        patches, complete = _patches(y_CHW[:, top : top + side], valid_HW[top : top + side], (3, 3))
        yield (
            patches.unfold(2, TILE, TILE // 2).transpose(1, 2).flatten(2),
            complete.unfold(1, TILE, TILE // 2).transpose(0, 1).flatten(1),
        )


def _covariances(patches: Tensor, complete: Tensor) -> Tensor:
    """Covariances (tiles, D, D) of the tiles with at least half of their patches complete."""
    chosen = complete.float().mean(1) >= 0.5
    weights = complete[chosen].float()
    count = weights.sum(1)
    columns = patches[:, chosen].transpose(0, 1)
    centred = (
        columns - ((columns * weights[:, None]).sum(2) / count[:, None])[..., None]
    ) * weights[:, None]
    return centred @ centred.mT / (count - 1)[:, None, None]


def _noise_variance(covariance: Tensor) -> Tensor:
    """Noise variance (N,) from covariances (N, D, D).

    It is the mean of the longest run of smallest eigenvalues whose mean does not exceed their
    median. The mean exceeds the median once eigenvalues of picture structure are included.
    """
    values = torch.linalg.eigvalsh(covariance.cpu().double()).clamp(min=0)
    count = torch.arange(1, values.shape[1] + 1)
    mean = values.cumsum(1) / count
    median = (values[:, (count - 1) // 2] + values[:, count // 2]) / 2
    longest = ((mean <= median * (1 + 1e-6)) * count).amax(1) - 1
    chosen: Tensor = mean.gather(1, longest[:, None])[:, 0]
    return chosen
