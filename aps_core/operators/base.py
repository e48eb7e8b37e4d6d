"""What a measurement operator is: a frozen spec that binds to a picture's shape.

To add one, write a file in this folder (or register a class under the entry-point group
``aps.operators``): fields with units, ``bind`` and, where the measurement has another size,
``image_shape``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from aps_core.registry import Spec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Shape = tuple[int, int, int]


class OperatorSpec(Spec, family=True):
    """A measurement operator A; the measurement is ``y = A(x) + sigma * noise`` on the [-1, 1]
    scale.
    """

    linear: ClassVar[bool] = False
    """Whether A is linear; the property tests then also check its adjoint."""

    weights: ClassVar[tuple[str, ...]] = ()
    """Names of the downloaded weights ``bind`` reads; see
    :func:`aps_core.checkpoints.checkpoint_cache.path`.
    """

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """All the downloaded weights this operator needs."""
        return self.weights

    @property
    def needs_mask(self) -> bool:
        """Whether a job must bring a mask picture (or an alpha channel)."""
        return False

    @abstractmethod
    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        """Draws everything random from the spec's own ``seed`` and returns A for pictures of
        ``shape_CHW``.

        ``mask_HW`` is the user's mask of 0 and 1 at the measurement's size, 1 = known; only
        operators with ``needs_mask`` read it.

        Raises:
            InvalidSpec: the shape (or the mask) does not fit the operator.
            WeightsMissing, WeightsInvalid: it needs ``weights`` that are absent or damaged.
        """

    def check_shape(self, shape_CHW: Shape) -> None:
        """Checks that :meth:`bind` takes pictures of this shape, as far as that shows without
        drawing anything; needs no torch.

        Raises:
            InvalidSpec: it does not.
        """

    def measurement(self, upload_CHW: Tensor) -> Tensor:
        """The measurement an upload (3, H, W) in [-1, 1] holds; where A loses colours, the upload
        may still show some.
        """
        return upload_CHW

    def image_shape(self, measurement_CHW: Shape) -> Shape:
        """Shape of the restored picture, given the measurement's."""
        return measurement_CHW


@dataclass(frozen=True)
class Bound:
    """A bound operator made of a function; see :class:`aps_core.types.BoundOperator`."""

    unclipped: Callable[[Tensor], Tensor]
    """A(x), before clipping where A ends by it."""
    weight: Tensor | None = None
    drawn: dict[str, Tensor] = field(default_factory=dict)
    clips: bool = False
    """Whether A ends by clipping what the function gives to [-1, 1], as a sensor does."""

    def __call__(self, x_BCHW: Tensor) -> Tensor:
        y_BCHW = self.unclipped(x_BCHW)
        return y_BCHW.clamp(-1, 1) if self.clips else y_BCHW

    def state(self) -> dict[str, Tensor]:
        return self.drawn

    def cropped(self, height: int, width: int) -> Bound:
        """A after cropping away what the token grid adds on the right and below."""
        return replace(self, unclipped=lambda x_BCHW: self.unclipped(x_BCHW[..., :height, :width]))
