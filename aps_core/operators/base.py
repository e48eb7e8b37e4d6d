"""Interface of a measurement operator: a frozen spec that is bound to a picture's shape.

To add one, write a file in this folder, or register a class under the entry-point group
``aps.operators``. It needs fields with units, ``bind`` and, if the measurement has another size
than the picture, ``image_shape``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, Self

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.registry import Spec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.numerics.likelihood import Noise
    from aps_core.types import BoundOperator
else:
    torch = lazy_import("torch")

Shape = tuple[int, int, int]

KERNEL_SIDE = 63
"""Longest side of an uploaded kernel in pixels."""
ROUNDING_WEIGHT = 2.0
"""Of rounding that counts as white noise. The errors of neighbouring pixels are alike and say less
than those of noise: restorations from JPEGs gain 0.1 to 0.4 dB, and up to 2 dB where a blur came
before.
"""
Weight = Annotated[float, Field(ge=0, le=1e6)]
Row = Annotated[tuple[Weight, ...], Field(min_length=1, max_length=KERNEL_SIDE)]
KernelRows = Annotated[tuple[Row, ...], Field(min_length=1, max_length=KERNEL_SIDE)]
"""A blur kernel as rows of non-negative weights. It is the picture of a point of light and need not
be normalised.
"""


class Support(NamedTuple):
    """Which part of a picture one measured value depends on.

    Inside a part of the picture that begins at a multiple of ``grid``, and further than ``pixels``
    (rounded up to a multiple of ``grid``) from its border, the measurement of the part equals that
    of the whole picture.
    """

    pixels: int
    """Reach to each side, in pixels of the restored picture."""
    grid: int = 1
    """Side of the blocks or of the measured pixels, in pixels of the restored picture."""

    @property
    def margin(self) -> int:
        """``pixels``, rounded up to whole blocks."""
        return -(-self.pixels // self.grid) * self.grid


class OperatorSpec(Spec, family=True):
    """A measurement operator A; the measurement is ``y = A(x) + sigma * noise`` on the [-1, 1]
    scale.
    """

    linear: ClassVar[bool] = False
    """Whether A is linear. If so, the property tests also check its adjoint."""

    weights: ClassVar[tuple[str, ...]] = ()
    """Names of downloaded weights that ``bind`` reads; see
    :func:`aps_core.checkpoints.checkpoint_cache.path`.
    """

    lengths: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that are lengths in pixels of the upload; see :meth:`scaled`."""

    alone: ClassVar[str] = ""
    """Why the operator cannot be a stage of ``compose``; empty if it can."""

    @property
    def each(self) -> Sequence[OperatorSpec]:
        """The degradations one after another: of a composition its stages, else this one."""
        return (self,)

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """All downloaded weights this operator needs."""
        return self.weights

    @property
    def rounding(self) -> float:
        """Standard deviation of what A rounds off, on the [-1, 1] scale."""
        return 0.0

    def likelihood_noise(self, sigma: float | Tensor) -> Noise:
        """What a likelihood takes for noise: white noise of standard deviation ``sigma``, and what
        A rounds off, here as more white noise, with a weight.
        """
        weighed = ROUNDING_WEIGHT * self.rounding
        return (sigma**2 + weighed**2) ** 0.5 if weighed else sigma

    def judged_noise(self, sigma: float | Tensor) -> float | Tensor:
        """Standard deviation that a verdict takes for noise: at least the rounding's."""
        if isinstance(sigma, float | int):
            return max(sigma, self.rounding)
        return sigma.clamp(min=self.rounding)

    def without_rounding(self) -> OperatorSpec:
        """This operator as a likelihood sees it, where the rounding is part of the noise: a rounded
        A(x) has no useful gradient.
        """
        return self

    @property
    def needs_mask(self) -> bool:
        """Whether a job must include a mask picture or an alpha channel."""
        return False

    @property
    def needs_kernel(self) -> bool:
        """Whether a job must include a picture of the blur kernel."""
        return False

    @property
    def support(self) -> Support | None:
        """What a measured value depends on; None if that is unknown, or if A differs from place to
        place. Only operators with a support restore a picture in tiles.
        """
        return None

    def beyond(self, stride: int) -> int:
        """On how many pixels beyond a picture's border the measured values near it depend, rounded
        up to whole tokens of ``stride`` pixels. 0 without a support, and for masks, which end
        there.
        """
        if self.support is None or self.needs_mask:
            return 0
        unit = math.lcm(self.support.grid, stride)
        return -(-self.support.pixels // unit) * unit

    def with_kernel(self, rows: KernelRows) -> Self:
        """Returns this operator with the uploaded kernel filled in."""
        return self

    def scaled(self, factor: float) -> OperatorSpec:
        """Returns the operator on an upload whose sides were multiplied by ``factor``.

        Users measure a blur in pixels of their upload, but the computation uses the working size.
        """
        return self.model_copy(update={name: getattr(self, name) * factor for name in self.lengths})

    def words(self) -> str:
        """The degradation with its strength, for messages: 'a Gaussian blur of 2 pixels'."""
        numbers = {
            name: value for name, value in self if isinstance(value, float | int) and name != "seed"
        }
        strength = ", ".join(f"{name.replace('_', ' ')} {v:.3g}" for name, v in numbers.items())
        return f"the degradation '{self.type}'" + (f" ({strength})" if strength else "")

    @abstractmethod
    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        """Draws all random parts from the spec's own ``seed`` and returns A for pictures of one
        shape.

        Args:
            shape_CHW: shape of the restored picture.
            device: device of the operator's tensors.
            mask_HW: the user's mask at the measurement's size, 1 = known, 0 = unknown. Only used if
                ``needs_mask``.

        Raises:
            InvalidSpec: the shape or the mask does not fit the operator.
            WeightsMissing, WeightsInvalid: required ``weights`` are absent or damaged.
        """

    def bind_wide(self, shape_CHW: Shape, beyond: int, device: torch.device | str = "cpu") -> Bound:
        """A for pictures with ``beyond`` more pixels at every border than ``shape_CHW``, of which
        it measures what :meth:`bind` does. A camera's blur mixes what lies beyond the border into
        the picture, where :meth:`bind` reflects the picture.
        """
        channels, height, width = shape_CHW
        wide = self.bind((channels, height + 2 * beyond, width + 2 * beyond), device)
        scale = self.image_shape((3, 1, 1))[1]
        rows, columns = (
            slice(beyond // scale, (beyond + side) // scale) for side in (height, width)
        )
        return wide.inside(rows, columns)

    def check_shape(self, shape_CHW: Shape) -> None:
        """Checks a picture's shape as far as possible without random parts. Needs no torch.

        Raises:
            InvalidSpec: :meth:`bind` would reject the shape.
        """

    def measurement(self, upload_CHW: Tensor) -> Tensor:
        """Converts an upload (3, H, W) in [-1, 1] to a measurement, for example to grey if A
        removes colour.
        """
        return upload_CHW

    def image_shape(self, measurement_CHW: Shape) -> Shape:
        """Shape of the restored picture for a measurement of the given shape."""
        return measurement_CHW


@dataclass(frozen=True)
class Bound:
    """A bound operator made from a function; see :class:`aps_core.types.BoundOperator`."""

    unclipped: Callable[[Tensor], Tensor]
    """A(x) before clipping."""
    weight: Tensor | None = None
    drawn: dict[str, Tensor] = field(default_factory=dict)
    clips: bool = False
    """Whether A clips the function's result to [-1, 1], as a sensor does."""

    def __call__(self, x_BCHW: Tensor) -> Tensor:
        y_BCHW = self.unclipped(x_BCHW)
        return y_BCHW.clamp(-1, 1) if self.clips else y_BCHW

    def state(self) -> dict[str, Tensor]:
        return self.drawn

    def inside(self, rows: slice, columns: slice) -> Bound:
        """A followed by cutting out measured values."""
        weight = None if self.weight is None else self.weight[..., rows, columns]
        return replace(
            self,
            unclipped=lambda x_BCHW: self.unclipped(x_BCHW)[..., rows, columns],
            weight=weight,
        )

    def cropped(self, height: int, width: int) -> Bound:
        """A composed with cropping the token grid's padding on the right and below."""
        return replace(self, unclipped=lambda x_BCHW: self.unclipped(x_BCHW[..., :height, :width]))


def four_dimensional(operator: BoundOperator) -> Bound:
    """Reshapes an operator's output (B, ...) of other dimensions to (B, n, 1, 1).

    The bound operator raises :class:`InvalidSpec` if that is no tensor.
    """

    def measured(x_BCHW: Tensor) -> Tensor:
        y = operator.unclipped(x_BCHW)
        if not isinstance(y, torch.Tensor) or not y.ndim:
            raise InvalidSpec(
                f"The operator returned {type(y).__name__}; it takes pictures (B, 3, H, W), and"
                " returns a tensor (B, ...)."
            )
        return y if y.ndim == 4 else y.reshape(len(y), -1, 1, 1)

    return Bound(measured, operator.weight, operator.state(), operator.clips)
