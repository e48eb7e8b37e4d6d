"""High dynamic range: an overexposed picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from aps_core.operators.base import Bound, OperatorSpec, Shape, Support

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class HDR(OperatorSpec):
    """Contrast was stretched until highlights and shadows clipped; restore the lost detail."""

    type: Literal["hdr"] = "hdr"
    scale: float = Field(
        2.0,
        gt=1,
        le=8,
        description="Values on the [-1, 1] scale were multiplied by this, then clipped.",
    )

    @property
    def support(self) -> Support:
        """Single pixels."""
        return Support(0)

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        return Bound(lambda x: self.scale * x, clips=True)
