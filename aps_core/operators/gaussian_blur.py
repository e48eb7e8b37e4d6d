"""Gaussian blur."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.imaging.filters import gaussian
from aps_core.operators.base import Bound, OperatorSpec, Shape, Support
from aps_core.operators.blur import check_reach, reflecting_filter

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


class GaussianBlur(OperatorSpec):
    """The picture is soft: a Gaussian blur of known width."""

    type: Literal["gaussian_blur"] = "gaussian_blur"
    sigma: float = Field(
        3.0,
        ge=0.01,
        le=200,
        description=(
            "Width of the blur in pixels of the upload. The paper's 3.0 is for 512-pixel pictures;"
            " at 128 use 1.5."
        ),
    )
    linear: ClassVar[bool] = True
    lengths: ClassVar[tuple[str, ...]] = ("sigma",)

    @property
    def reach(self) -> int:
        """Pixels covered to each side: the kernel is truncated at four sigma, as in the reference
        implementation.
        """
        return int(4 * self.sigma + 0.5)

    @property
    def support(self) -> Support:
        """The truncated kernel."""
        return Support(self.reach)

    def words(self) -> str:
        return f"a Gaussian blur of {self.sigma:.3g} pixels"

    def check_shape(self, shape_CHW: Shape) -> None:
        """The picture must be larger than the kernel's reach."""
        check_reach(self.reach, *shape_CHW[1:])

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        line = gaussian(self.sigma, self.reach, torch.float64, device)
        return Bound(reflecting_filter(torch.outer(line, line).float(), *shape_CHW[1:]))
