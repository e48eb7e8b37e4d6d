"""What blurring operators share: filtering with reflecting borders, by Fourier transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.imaging.resampling import reflect_pad

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


def check_reach(reach: int, height: int, width: int) -> None:
    """Checks that a picture is larger than a blur's ``reach`` (all in pixels).

    Raises:
        InvalidSpec: it is not, so that there is nothing to reflect at its borders.
    """
    if height <= reach or width <= reach:
        raise InvalidSpec(
            f"The blur reaches {reach} pixels to each side, but the picture is only"
            f" {width}x{height}; use a smaller kernel or a larger picture."
        )


def reflecting_filter(kernel: Tensor, height: int, width: int) -> Callable[[Tensor], Tensor]:
    """Cross-correlation of (B, C, ``height``, ``width``) pictures with one (kh, kw) kernel of odd
    sides.

    Borders reflect without repeating the edge. The cost hardly depends on the kernel's size: on a
    CPU at 512 pixels a 61x61 kernel takes a fiftieth of a direct convolution's time, and a small
    one no longer than two line filters.

    Raises:
        InvalidSpec: the picture is not larger than the kernel's reach, so that there is nothing to
            reflect.
    """
    kh, kw = kernel.shape
    rows, columns = kh // 2, kw // 2
    check_reach(max(rows, columns), height, width)
    size = (_fast_length(height + 2 * rows), _fast_length(width + 2 * columns))
    spectrum = torch.fft.rfft2(kernel, size).conj()

    def apply(x_BCHW: Tensor) -> Tensor:
        padded = reflect_pad(x_BCHW, (rows, rows), (columns, columns))
        filtered: Tensor = torch.fft.irfft2(torch.fft.rfft2(padded, size) * spectrum, size)
        return filtered[..., :height, :width]

    return apply


def _fast_length(n: int) -> int:
    """The next length whose prime factors are 2, 3 and 5: the ones Fourier transforms are fast
    at.
    """
    while True:
        rest = n
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return n
        n += 1
