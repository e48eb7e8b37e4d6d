"""What a loss is: a frozen spec that binds to a measurement.

To add one, write a file in this folder (or register a class under the entry-point group
``aps.losses``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from aps_core.registry import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.types import BoundOperator, Features, Objective

    FeatureSource = Callable[[str], Features]
    """From the name of a feature extractor, ``tokenizer`` or ``vgg16``, to the extractor."""


class LossSpec(Spec, family=True):
    """How a picture's measurement is compared with the one that was made."""

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Names of the downloaded weights :meth:`bind` reads."""
        return ()

    @abstractmethod
    def bind(
        self,
        operator: BoundOperator,
        y_BCHW: Tensor,
        sigma: float | Tensor,
        features: FeatureSource,
    ) -> Objective:
        """The objective of one measurement, or of several at once.

        Args:
            operator: A, bound to the picture's shape.
            y_BCHW: one measurement (1, ...) for all samples, or one for each sample.
            sigma: standard deviation of its noise on the [-1, 1] scale, a number or a tensor that
                broadcasts to ``y_BCHW``.
            features: gives a feature extractor by its name.

        Raises:
            WeightsMissing, WeightsInvalid: a feature extractor's file is absent or damaged.
        """
