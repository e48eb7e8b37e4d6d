"""An operator in a file outside the repository's packages."""

from typing import Literal

from pydantic import Field

from aps_core import Bound, OperatorSpec


class Dimmed(OperatorSpec):
    """The picture is too dark."""

    type: Literal["outside_operator"] = "outside_operator"
    dimming: float = Field(0.5, gt=0, le=1, description="Share of the light that is left.")

    def bind(self, shape_CHW, device="cpu", mask_HW=None):
        return Bound(lambda x_BCHW: (x_BCHW + 1) * self.dimming - 1)
