"""Converts the types of pictures that the library accepts to tensors or pixels."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.imaging import images

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    PictureLike = Tensor | np.ndarray | Image.Image | images.Picture | str | PathLike[str]
else:
    torch = lazy_import("torch")
    PictureLike = Any


LARGEST = 10.0
"""Magnitude that a noisy picture in [-1, 1] never reaches."""
POSITIVE = (
    "No value of 'y' is negative: if the picture is on the scale [0, 1], it was taken for a bright"
    " one; pictures are in [-1, 1]."
)


def picture(given: PictureLike) -> Tensor:
    """Converts one picture of any supported type to a float tensor (C, H, W); see
    :class:`aps_core.Measurement`.

    Raises:
        InvalidSpec: the type or shape is not supported.
        ImageRejected, ImageTooLarge: a file cannot be read.
    """
    if (file := opened(given)) is not None:
        return images.to_tensor(file)
    if isinstance(given, np.ndarray):
        given = torch.from_numpy(given).float()
    if not isinstance(given, torch.Tensor) or not given.is_floating_point():
        raise InvalidSpec(
            "A picture is a float tensor (C, H, W), a float or 8-bit array, a PIL image or a path;"
            f" this is {type(given).__name__}."
        )
    return given


def opened(given: PictureLike | Sequence[PictureLike]) -> images.Picture | None:
    """One file, PIL image or 8-bit array as upright pixels; None for float values and batches of
    several.

    Raises:
        InvalidSpec: an 8-bit array has another shape.
        ImageRejected, ImageTooLarge: a file cannot be read.
    """
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 1:
        given = given[0]
    if isinstance(given, images.Picture):
        return given
    if isinstance(given, str | PathLike):
        return images.open_image(Path(given).read_bytes())
    if isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.ndim < 4:
        if given.ndim < 2 or not given.size or given.shape[2:] not in ((), (1,), (3,), (4,)):
            raise InvalidSpec(
                "An 8-bit array is (H, W) or (H, W, C) with 1, 3 or 4 channels; this is"
                f" {given.shape}."
            )
        given = Image.fromarray(given[..., 0] if given.shape[2:] == (1,) else given)
    return images.upright(given) if isinstance(given, Image.Image) else None


def eight_bit(given: PictureLike | Sequence[PictureLike]) -> bool:
    """Whether a picture's values were rounded to 8 bits: files, PIL images and 8-bit arrays."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        return any(map(eight_bit, given))
    if isinstance(given, np.ndarray):
        return given.dtype == np.uint8
    return isinstance(given, str | PathLike | Image.Image | images.Picture)


def batch(given: PictureLike | Sequence[PictureLike]) -> Tensor:
    """One or several measurements as a four-dimensional tensor (B, ...).

    Raises:
        InvalidSpec: there are no values, or one is not a finite number.
    """
    if (isinstance(given, Sequence) and not isinstance(given, str)) or (
        isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.ndim == 4
    ):
        y = torch.stack([picture(each) for each in given])
    else:
        y = picture(given)
    if not y.numel():
        raise InvalidSpec(f"'y' has no values: its shape is {tuple(y.shape)}.")
    if not bool(y.isfinite().all()):
        raise InvalidSpec(
            "'y' has values that are NaN or infinite; mark missing pixels in 'mask' instead."
        )
    return y[None] if y.ndim == 3 else y if y.ndim == 4 else y.reshape(len(y), -1, 1, 1)


def scale_caveats(y_BCHW: Tensor) -> list[str]:
    """A note if no value is negative.

    Raises:
        InvalidSpec: values are not on the scale [-1, 1].
    """
    largest = float(y_BCHW.abs().max())
    if largest > LARGEST:
        raise InvalidSpec(
            f"'y' has values up to {largest:.0f}; pictures are in [-1, 1], or 8-bit arrays."
        )
    return [] if float(y_BCHW.min()) < 0 else [POSITIVE]
