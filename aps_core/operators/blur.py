"""What blurring operators share: reflecting borders and depthwise filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


def check_reach(height: int, width: int, reach: int) -> None:
    """Reflecting borders need a picture larger than the kernel's reach.

    Raises:
        InvalidSpec: it is not.
    """
    if min(height, width) <= reach:
        raise InvalidSpec(f"The blur reaches {reach} pixels to each side, but the picture is only {width}x{height}; use a smaller kernel or a larger picture.")


def filter_picture(x_BCHW: Tensor, kernel: Tensor) -> Tensor:
    """Depthwise cross-correlation with a (kh, kw) kernel of odd sides; borders reflect without repeating the edge."""
    kh, kw = kernel.shape
    channels = x_BCHW.shape[1]
    padded = torch.nn.functional.pad(x_BCHW, (kw // 2, kw // 2, kh // 2, kh // 2), mode="reflect")
    return torch.nn.functional.conv2d(padded, kernel.to(x_BCHW.dtype).expand(channels, 1, kh, kw), groups=channels)
