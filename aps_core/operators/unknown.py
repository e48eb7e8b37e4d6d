"""Operators that are identified from the upload when the job runs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aps_core.errors import InvalidSpec
from aps_core.operators.base import Bound, OperatorSpec, Shape

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.diagnosis.found import Found
    from aps_core.imaging.images import Picture


@dataclass(frozen=True)
class Search:
    """What an unknown operator is identified from."""

    upload: Picture


class UnknownOperator(OperatorSpec):
    """A degradation that is identified from the upload when the job runs.

    Until then, sizes and estimates are those of an operator that keeps the picture's size. The
    result is never larger than the upload.
    """

    @abstractmethod
    def find(self, search: Search) -> Found:
        """Identifies the degradation. Equal inputs give equal answers.

        Raises:
            NothingToRestore: no degradation was found that an operator describes.
        """

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        """Always fails: there is nothing to compute before the degradation is identified."""
        raise InvalidSpec(
            f"The operator '{self.type}' is identified from a degraded upload; it cannot degrade a"
            " picture, and stands alone. Name another operator."
        )
