"""Interface of a loss: a frozen spec that is bound to a measurement.

To add one, write a file in this folder, or register a class under the entry-point group
``aps.losses``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from aps_core.registry import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.numerics.likelihood import Noise
    from aps_core.types import BoundOperator, Features, Objective

    FeatureSource = Callable[[str], Features]
    """Returns a feature extractor by name, ``tokenizer`` or ``vgg16``."""


class LossSpec(Spec, family=True):
    """Compares the measurement of an estimate with the observed measurement."""

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Names of downloaded weights that :meth:`bind` reads."""
        return ()

    def settled(self) -> Self:
        """Returns this loss with machine-dependent choices fixed."""
        return self

    def caveats(self) -> list[str]:
        """Notes for the result about machine-dependent choices."""
        return []

    @abstractmethod
    def bind(
        self,
        operator: BoundOperator,
        y_BCHW: Tensor,
        sigma: Noise,
        features: FeatureSource,
    ) -> Objective:
        """Creates the objective of one measurement, or of several at once.

        Args:
            operator: A, bound to the picture's shape.
            y_BCHW: one measurement (1, ...) for all samples, or one per sample.
            sigma: standard deviation of its noise on the [-1, 1] scale, as a number or a tensor
                that broadcasts to ``y_BCHW``; or coloured noise.
            features: returns a feature extractor by name.

        Raises:
            WeightsMissing, WeightsInvalid: a feature extractor's file is absent or damaged.
        """
