"""The paper's loss: a norm of the residual, plus a perceptual distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field

from aps_core.checkpoints import checkpoint_cache
from aps_core.losses.base import LossSpec

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.losses.base import FeatureSource
    from aps_core.numerics.likelihood import Noise
    from aps_core.objectives.measurement import MeasurementObjective
    from aps_core.types import BoundOperator


class MeasurementLoss(LossSpec):
    """Norm of the residual, plus a perceptual distance between the measurements."""

    type: Literal["measurement"] = "measurement"
    norm: Literal["l1", "l2"] = Field(
        "l1",
        description=(
            "How deviations from the measurement count: by their size ('l1', the paper's choice,"
            " for sharpness) or by their square ('l2')."
        ),
    )
    perceptual_weight: float = Field(
        1e-3,
        ge=0,
        le=10,
        description=(
            "How much visual features count beside single pixels (weight of the perceptual term,"
            " per pixel of the data term)."
        ),
    )
    perceptual: Literal["tokenizer", "vgg16", "auto"] = Field(
        "tokenizer",
        description=(
            "What computes the visual features: the prior's own image encoder, or VGG16 (the"
            " paper's), whose weights must be installed. 'auto' is VGG16 where it is installed,"
            " else the encoder; the result says which."
        ),
    )

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """VGG16, if the perceptual term uses it."""
        return ("vgg16",) if self.perceptual_weight and self.perceptual == "vgg16" else ()

    def settled(self) -> Self:
        """Replaces 'auto' by the installed feature extractor."""
        if self.perceptual != "auto":
            return self
        kind = "tokenizer" if checkpoint_cache.missing(("vgg16",)) else "vgg16"
        return self.model_copy(update={"perceptual": kind})

    def caveats(self) -> list[str]:
        """A note if 'auto' could not use VGG16."""
        if not self.perceptual_weight or self.perceptual != "auto":
            return []
        lacking = checkpoint_cache.missing(("vgg16",))
        if lacking is None:
            return []
        return [
            "The perceptual term compared features of the prior's own image encoder, not of VGG16"
            f" as in the paper. {lacking}"
        ]

    def bind(
        self,
        operator: BoundOperator,
        y_BCHW: Tensor,
        sigma: Noise,
        features: FeatureSource,
    ) -> MeasurementObjective:
        """Data term plus, if weighted, the perceptual term."""
        from aps_core.objectives.measurement import MeasurementObjective

        return MeasurementObjective(
            operator,
            y_BCHW,
            sigma,
            self.norm,
            features(self.settled().perceptual) if self.perceptual_weight else None,
            self.perceptual_weight,
        )
