"""The paper's loss: a norm of the residual, plus a perceptual distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from aps_core.losses.base import LossSpec

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.losses.base import FeatureSource
    from aps_core.objectives.measurement import MeasurementObjective
    from aps_core.types import BoundOperator


class MeasurementLoss(LossSpec):
    """Norm of the residual, plus a perceptual distance between the measurements."""

    type: Literal["measurement"] = "measurement"
    norm: Literal["l1", "l2"] = Field(
        "l1", description="Norm of the data term; the paper chooses L1 for sharpness."
    )
    perceptual_weight: float = Field(
        1e-3, ge=0, le=10, description="Weight of the perceptual term, per pixel of the data term."
    )
    perceptual: Literal["tokenizer", "vgg16"] = Field(
        "tokenizer",
        description=(
            "Features of the perceptual term: the prior's own image encoder, or VGG16 (the"
            " paper's), whose weights must be installed."
        ),
    )

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """VGG16's, where the perceptual term uses it."""
        return ("vgg16",) if self.perceptual_weight and self.perceptual == "vgg16" else ()

    def bind(
        self,
        operator: BoundOperator,
        y_BCHW: Tensor,
        sigma: float | Tensor,
        features: FeatureSource,
    ) -> MeasurementObjective:
        """Data term and, when weighted, the perceptual term."""
        from aps_core.objectives.measurement import MeasurementObjective

        return MeasurementObjective(
            operator,
            y_BCHW,
            sigma,
            self.norm,
            features(self.perceptual) if self.perceptual_weight else None,
            self.perceptual_weight,
        )
