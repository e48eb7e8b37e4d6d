"""Gaussian kernels, separable filters, and fast lengths of Fourier transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


def gaussian(
    sigma: float, reach: int, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> Tensor:
    """Gaussian kernel (2 * reach + 1,) of sum 1.

    Args:
        sigma: standard deviation in pixels.
        reach: pixels covered to each side; the callers truncate at different multiples of sigma.
        dtype: floating-point type.
        device: device of the kernel.
    """
    offsets = torch.arange(
        -reach, reach + 1, dtype=dtype or torch.get_default_dtype(), device=device
    )
    line = torch.exp(-offsets.square() / (2 * sigma**2))
    return line / line.sum()


def separable(x: Tensor, line_N: Tensor) -> Tensor:
    """Filters the columns, then the rows of (..., H, W) with one kernel of odd length N.

    Pixels beyond the edges are 0, so the size stays the same.
    """
    reach = len(line_N) // 2
    flat = x.reshape(-1, 1, *x.shape[-2:])
    flat = torch.nn.functional.conv2d(flat, line_N.view(1, 1, -1, 1), padding=(reach, 0))
    flat = torch.nn.functional.conv2d(flat, line_N.view(1, 1, 1, -1), padding=(0, reach))
    return flat.view(x.shape)


def fast_length(n: int) -> int:
    """Smallest length >= n whose only prime factors are 2, 3 and 5: fast for Fourier transforms."""
    while True:
        rest = n
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return n
        n += 1
