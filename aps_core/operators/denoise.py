"""Denoising: the picture itself is the measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from aps_core.operators.base import Bound, OperatorSpec, Shape, Support

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Denoise(OperatorSpec):
    """The picture is complete and sharp, but noisy."""

    type: Literal["denoise"] = "denoise"
    linear: ClassVar[bool] = True

    def words(self) -> str:
        return "noise alone"

    @property
    def support(self) -> Support:
        """Single pixels."""
        return Support(0)

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        return Bound(lambda x: x)
