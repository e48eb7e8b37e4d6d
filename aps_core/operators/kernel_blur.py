"""Blur with a kernel given by the user."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.operators.base import (
    KERNEL_SIDE,
    Bound,
    KernelRows,
    OperatorSpec,
    Shape,
    Support,
)
from aps_core.operators.blur import check_reach, reflecting_filter

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.imaging.images import Picture
else:
    torch = lazy_import("torch")


class KernelBlur(OperatorSpec):
    """The blur is known as a kernel: the picture of a point of light."""

    type: Literal["kernel_blur"] = "kernel_blur"
    kernel: Literal["upload"] | KernelRows = Field(
        "upload",
        description=(
            "'upload': the job's kernel picture (grey, at most 63 pixels a side, bright where the"
            " light went); or rows of non-negative weights. Only proportions matter. In pixels of"
            " the upload."
        ),
    )
    linear: ClassVar[bool] = True

    @field_validator("kernel")
    @classmethod
    def _usable(cls, kernel: Literal["upload"] | KernelRows) -> Literal["upload"] | KernelRows:
        if kernel != "upload":
            if len({len(row) for row in kernel}) != 1:
                raise ValueError("all rows of a kernel must have the same length")
            if not any(map(any, kernel)):
                raise ValueError("a kernel needs a weight above 0")
        return kernel

    @classmethod
    def of(cls, kernel_KK: Tensor) -> Self:
        """The blur that makes this picture of a point of light."""
        return cls(kernel=tuple(tuple(row) for row in kernel_KK.double().cpu().tolist()))

    @property
    def needs_kernel(self) -> bool:
        """Only for ``kernel='upload'``."""
        return self.kernel == "upload"

    @property
    def support(self) -> Support:
        """The kernel; of an upload that was not read yet, the largest one."""
        if self.kernel == "upload":
            return Support(KERNEL_SIDE // 2)
        return Support(max(len(self.kernel), len(self.kernel[0])) // 2)

    def with_kernel(self, rows: KernelRows) -> Self:
        return type(self)(kernel=rows) if self.needs_kernel else self

    def scaled(self, factor: float) -> Self:
        """Resamples the kernel."""
        if self.kernel == "upload":
            return self
        rows = resampled_kernel(self._array(), factor).tolist()
        return self.model_copy(update={"kernel": tuple(tuple(row) for row in rows)})

    def words(self) -> str:
        if self.kernel == "upload":
            return "the uploaded kernel"
        return f"a kernel of {len(self.kernel[0])}x{len(self.kernel)} pixels"

    def check_shape(self, shape_CHW: Shape) -> None:
        """The picture must be larger than half of the kernel."""
        if self.kernel != "upload":
            reach = max(len(self.kernel), len(self.kernel[0])) // 2
            check_reach(reach, *shape_CHW[1:])

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        if self.kernel == "upload":
            raise InvalidSpec("This blur needs a kernel: send a 'kernel' picture, or its weights.")
        # the filter correlates; a point of light shows the mirrored kernel
        point = self._array()[::-1, ::-1].copy()
        kernel = torch.from_numpy(point).float().to(device)
        return Bound(reflecting_filter(kernel, *shape_CHW[1:]), drawn={"kernel": kernel})

    def _array(self) -> NDArray[np.float64]:
        """The kernel with sum 1 and odd sides; a missing last row or column is 0."""
        rows = np.array(self.kernel, dtype=np.float64)
        odd: NDArray[np.float64] = np.pad(rows, [(0, 1 - side % 2) for side in rows.shape])
        normalised: NDArray[np.float64] = odd / odd.sum()
        return normalised


def kernel_rows(picture: Picture) -> KernelRows:
    """Reads the weights of a kernel from the brightness of a small picture.

    Raises:
        InvalidSpec: the picture is too large, or black.
    """
    check_kernel_size(picture.width, picture.height)
    image = picture.image
    grey = np.asarray(image if image.mode == "I;16" else image.convert("L"), dtype=np.float64)
    if not grey.any():
        raise InvalidSpec("The kernel picture is black; it needs a bright pixel.")
    return tuple(tuple(row) for row in grey.tolist())


def check_kernel_size(width: int, height: int) -> None:
    """Checks the sides of a kernel picture.

    Raises:
        InvalidSpec: a side has more than ``KERNEL_SIDE`` pixels.
    """
    if max(width, height) > KERNEL_SIDE:
        raise InvalidSpec(
            f"The kernel picture is {width}x{height} pixels; at most {KERNEL_SIDE}x{KERNEL_SIDE}"
            " are used. Send only the kernel, cropped."
        )


def resampled_kernel(kernel: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """A kernel of odd sides with every length multiplied by ``factor``. Keeps sum and centre.

    Every weight is spread evenly over its scaled pixel, and shared between the pixels under it.
    """
    rows, columns = (_shares(side, factor) for side in kernel.shape)
    resampled: NDArray[np.float64] = rows @ kernel @ columns.T
    return resampled


def _shares(side: int, factor: float) -> NDArray[np.float64]:
    """Share (new, old) of every old pixel that falls on every new one."""
    old = (np.arange(side) - side // 2) * factor
    reach = max(0, math.ceil(side * factor / 2 - 0.5))
    new = np.arange(-reach, reach + 1)[:, None]
    low, high = np.maximum(new - 0.5, old - factor / 2), np.minimum(new + 0.5, old + factor / 2)
    shares: NDArray[np.float64] = np.clip(high - low, 0, None) / factor
    return shares
