"""Base class of operators that are identified from the upload when the job runs."""

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
"""Reach in pixels and block size assumed for a degradation until it is identified."""


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
            NothingToRestore: no operator describes what was found.
        """

    @property
    def support(self) -> Support:
        """Assumed support, used to plan tiles before the degradation is identified."""
        return Support(ASSUMED_REACH, ASSUMED_GRID)

    def token_passes(self, stride: int) -> int:
        """Cost of :meth:`find` in the unit of :meth:`TaskSpec.work`: tokens times passes."""
        return 0

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        """Always fails: the degradation must be identified first."""
        raise InvalidSpec(
            f"The operator '{self.type}' is identified from a degraded upload; it cannot degrade a"
            " picture, and stands alone. Name another operator."
        )
