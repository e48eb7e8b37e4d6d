"""Operators that are identified from the upload when the job runs."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from aps_core.errors import InvalidSpec
from aps_core.identify.search import Search
from aps_core.operators.base import Bound, OperatorSpec, Shape, Support

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.identify.diagnosis.found import Found

ASSUMED_REACH, ASSUMED_GRID = 16, 8
"""Pixels that a degradation reaches to each side, and its block size, while it is unknown."""


class UnknownOperator(OperatorSpec):
    """A degradation that is identified from the upload when the job runs.

    Until then, sizes and estimates are those of an operator that keeps the picture's size. The
    result is never larger than the upload.
    """

    alone: ClassVar[str] = "an operator that identifies what happened stands alone"

    @abstractmethod
    def find(self, search: Search) -> Found:
        """Identifies the degradation. Equal inputs give equal answers.

        Raises:
            NothingToRestore: no degradation was found that an operator describes.
        """

    @property
    def support(self) -> Support:
        """An assumption, from which tiles are planned until the degradation is identified."""
        return Support(ASSUMED_REACH, ASSUMED_GRID)

    def token_passes(self, stride: int) -> int:
        """Work of :meth:`find` in the unit of :meth:`TaskSpec.work`: tokens times passes."""
        return 0

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        """Always fails: there is nothing to compute before the degradation is identified."""
        raise InvalidSpec(
            f"The operator '{self.type}' is identified from a degraded upload; it cannot degrade a"
            " picture, and stands alone. Name another operator."
        )
