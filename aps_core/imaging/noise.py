"""Measurement noise on the [-1, 1] scale: adding it, and estimating how much there is."""

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
"""Values beyond this (about two grey levels from black or white) were probably clipped and carry
less noise.
"""
TILE = 32
"""Side of the tiles the noise is estimated in, in pixels; they overlap by half."""
LOW_DECILE = 0.95
"""Share of the true deviation the tenth percentile over tiles shows in a picture of nothing but
noise.
"""


def add_noise(y: Tensor, sigma: float, generator: Generator) -> Tensor:
    """``y + sigma * noise``, not clipped; sigma 0.05 here is 0.025 on a [0, 1] scale."""
    return y + sigma * torch.randn(y.shape, generator=generator, device=y.device, dtype=y.dtype)


def add_poisson(y: Tensor, peak: float, generator: Generator) -> Tensor:
    """Photon noise: ``y`` as counted, where white counts ``peak`` photons on average and black
    none. Not clipped above.
    """
    return torch.poisson(_counts(y, peak).to("cpu"), generator=generator).to(y) * (2 / peak) - 1


def poisson_sigma(y: Tensor, peak: float) -> Tensor:
    """Standard deviation of every value's photon noise, estimated from the noisy value itself: the
    root of its count.

    A count below 1 is taken for 1, or black pixels would be trusted without bounds.
    """
    return _counts(y, peak).clamp(min=1).sqrt() * (2 / peak)


def _counts(y: Tensor, peak: float) -> Tensor:
    return (y.clamp(min=-1) + 1) * (peak / 2)


def estimate_sigma(y_CHW: Tensor, weight: Tensor | None = None) -> float:
    """Standard deviation of white Gaussian noise in a picture, on its own scale.

    Small patches of a picture lie near a subspace, while noise fills all directions: the small
    eigenvalues of the patches' covariance are the noise's variance (Chen, Zhu and Heng 2015).
    Patches span the colours, whose details go together, and the lowest decile over tiles keeps
    texture out. Saturated and unobserved pixels (``weight`` 0) are left out; where single pixels
    are missing, three observed ones in a row make a patch. The answer is 0 when too few patches
    remain.

    Noise must be independent from pixel to pixel and, unless the picture is grey, from colour to
    colour. JPEG compression after the noise breaks both and hides it: then give sigma instead.
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
    """The channels to estimate from, and where all of them are observed and not saturated, (H,
    W).
    """
    valid = y_CHW.abs() < SATURATED
    if weight is not None:
        valid = valid & (weight.expand(1, *y_CHW.shape)[0] > 0)
    if torch.equal(y_CHW, y_CHW[:1].expand_as(y_CHW)):  # grey: one channel says it all
        y_CHW, valid = y_CHW[:1], valid[:1]
    counts = valid.sum((1, 2))
    # in a picture of pure colours a channel can be clipped throughout
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
    """3x3 patches of one row of tiles after the other, which bounds the memory: (D, tiles, n) and
    (tiles, n).
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
    """(tiles, D, D), of those tiles at least half of whose patches are complete."""
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

    Taken from the longest run of smallest eigenvalues whose mean does not exceed their median, as
    it does once eigenvalues of the picture's own structure join in.
    """
    values = torch.linalg.eigvalsh(covariance.cpu().double()).clamp(min=0)
    count = torch.arange(1, values.shape[1] + 1)
    mean = values.cumsum(1) / count
    median = (values[:, (count - 1) // 2] + values[:, count // 2]) / 2
    longest = ((mean <= median * (1 + 1e-6)) * count).amax(1) - 1
    chosen: Tensor = mean.gather(1, longest[:, None])[:, 0]
    return chosen
