"""Interface of a style measure: a frozen spec that is bound to a reference picture.

To add one, write a file in this folder, or register a class under the entry-point group
``aps.style_measures``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from aps_core.registry import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.types import Objective, Tokenizer

Network = TypeVar("Network")


class NetworkCache(Protocol):
    """Keeps the networks of a process."""

    def __call__(self, name: str, load: Callable[[], Network]) -> Network:
        """Returns the network ``name``; calls ``load`` the first time."""
        ...


class StyleMeasureSpec(Spec, family=True):
    """Measures how much the style of a picture differs from that of a reference."""

    weights: ClassVar[tuple[str, ...]] = ()
    """Names of downloaded weights that :meth:`bind` reads."""
    recommended: ClassVar[Mapping[str, Any]] = {}
    """Fields of :class:`aps_core.samplers.aps.APSConfig` that suit this measure. They override the
    prior's recommendation.
    """

    @abstractmethod
    def bind(
        self, reference_CHW: Tensor, tokenizer: Tokenizer, networks: NetworkCache
    ) -> Objective:
        """Creates the objective of one reference.

        Its loss has the magnitude of a sum over the picture's values, as a bare distance would
        give gradients below Adam's epsilon. Its misfit is the distance: 0 for the reference.

        Args:
            reference_CHW: the style picture in [-1, 1], any size, on the device of the computation.
            tokenizer: tokenizer of the prior, for measures that use its encoder.
            networks: loads a further network once per process.

        Raises:
            WeightsMissing, WeightsInvalid: required ``weights`` are absent or damaged.
        """
