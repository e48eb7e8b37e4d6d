"""Padding and resizing of tensors with deterministic gradients.

In deterministic mode on a GPU, torch cannot differentiate its reflection padding and bicubic
interpolation, and replaces edge padding by a slow indexed sum. Copies and matrix products are not
affected.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


def mirror_pad(
    x_BCHW: Tensor, rows: tuple[int, int], columns: tuple[int, int], *, repeat_edge: bool = False
) -> Tensor:
    """Mirrors any number of pixels before and after. Small pictures are mirrored several times.

    Args:
        x_BCHW: pictures (..., H, W).
        rows: rows to add above and below.
        columns: columns to add left and right.
        repeat_edge: mirrors at the outer edge of the last pixel and so repeats it ("symmetric" in
            numpy), instead of at its centre ("reflect").
    """
    skipped = 0 if repeat_edge else 1
    for dim, (before, after) in ((-2, rows), (-1, columns)):
        # one mirror per pass; the next is at the edge of the padded picture
        reach = x_BCHW.shape[dim] - skipped
        if reach == 0:  # its own mirror
            x_BCHW = torch.cat([x_BCHW] * (1 + before + after), dim)
            continue
        while before or after:
            first, last = min(before, reach), min(after, reach)
            end = x_BCHW.shape[dim] - skipped
            x_BCHW = torch.cat(
                (
                    x_BCHW.narrow(dim, skipped, first).flip(dim),
                    x_BCHW,
                    x_BCHW.narrow(dim, end - last, last).flip(dim),
                ),
                dim,
            )
            before, after = before - first, after - last
    return x_BCHW


def edge_pad(x_BCHW: Tensor, below: int, right: int) -> Tensor:
    """Repeats the last row and the last column."""
    for dim, count in ((-2, below), (-1, right)):
        if count:
            edge = x_BCHW.narrow(dim, x_BCHW.shape[dim] - 1, 1)
            x_BCHW = torch.cat([x_BCHW, *[edge] * count], dim)
    return x_BCHW


def resize(x: Tensor, size: tuple[int, int], *, deterministic: bool = False) -> Tensor:
    """Antialiased bicubic resizing, equal to torch's and Pillow's.

    Args:
        x: pictures (..., C, H, W) with at least three dimensions.
        size: new height and width in pixels.
        deterministic: whether the gradient must be deterministic on CUDA. It then multiplies by
            matrices that grow with the square of the picture's side, and is slower.

    Returns:
        Pictures (..., C, *size).
    """
    if not deterministic:
        x_BCHW = x.reshape(-1, *x.shape[-3:])
        new_BCHW = torch.nn.functional.interpolate(x_BCHW, size, mode="bicubic", antialias=True)
        return new_BCHW.reshape(*x.shape[:-2], *size)
    if x.shape[-2:] == size:
        return x
    down, across = (
        _bicubic(old, new, x.device, x.dtype) for old, new in zip(x.shape[-2:], size, strict=True)
    )
    return down @ (x @ across.T)


@lru_cache(maxsize=16)
def _bicubic(old: int, new: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Weights (new, old) of one axis, obtained by resizing unit vectors with torch."""
    vectors = torch.eye(old, dtype=torch.float64, device=device)[None, None]
    return torch.nn.functional.interpolate(vectors, (new, old), mode="bicubic", antialias=True)[
        0, 0
    ].to(dtype)
