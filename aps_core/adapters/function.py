"""Adapts a function of pictures, or a deepinv physics object, to an operator spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict

from aps_core._lazy import lazy_import
from aps_core.adapters import deepinv
from aps_core.errors import InvalidSpec
from aps_core.operators import Bound, OperatorSpec, Shape
from aps_core.operators.base import four_dimensional
from aps_core.types import BoundOperator

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")

GIVE_SIZE = "give the measurement size=(height, width)."


class FunctionOperator(OperatorSpec):
    """A forward model that a caller of the library wrote. It is not registered, cannot be stored as
    JSON, and nothing is known of it but what it computes.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    function: Any
    size: tuple[int, int] | None = None
    """Height and width of the picture; None: those of the measurement."""

    @classmethod
    def of(cls, given: Any, size: tuple[int, int] | None) -> FunctionOperator:
        """Adapts ``given``, a physics object or differentiable function of pictures (B, 3, H, W) in
        [-1, 1].

        Raises:
            InvalidSpec: it is neither.
        """
        if not callable(given):
            raise InvalidSpec(
                "'operator' is a registered operator, its name or fields, or a function of"
                f" pictures, not {given!r}."
            )
        if deepinv.is_physics(given):
            size = size or deepinv.image_size(given)
        return cls(type="given", function=given, size=size)

    def words(self) -> str:
        """Nothing is known of it."""
        return "the given operator"

    def image_shape(self, measurement_CHW: Shape) -> Shape:
        """The given size, else the measurement's."""
        return 3, *(self.size or measurement_CHW[1:])

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        """The function; its output always has four dimensions."""
        given = self.function
        function = deepinv.bound(given) if deepinv.is_physics(given) else given
        if not isinstance(function, BoundOperator):
            function = Bound(function)
        return four_dimensional(function)

    def noise(self) -> float | None:
        """Standard deviation of the noise, if the physics object tells it."""
        return deepinv.sigma(self.function) if deepinv.is_physics(self.function) else None


def check_made(operator: Bound, shape_CHW: Shape, y_BCHW: Tensor) -> None:
    """Checks that A makes measurements of the shape of ``y`` of pictures of the given shape.

    Raises:
        InvalidSpec: it does not, or fails.
    """
    _, height, width = shape_CHW
    try:
        with torch.no_grad():
            made = operator(y_BCHW.new_zeros(1, 3, height, width)).shape[1:]
    except RuntimeError as error:  # raised by torch for an unsupported shape
        raise InvalidSpec(
            f"The operator fails for a picture of {width}x{height} pixels ({error}); if the"
            f" picture has another size, {GIVE_SIZE}"
        ) from error
    if made != y_BCHW.shape[1:]:
        raise InvalidSpec(
            f"For a picture of {width}x{height} pixels the operator makes measurements of shape"
            f" {tuple(made)}, but 'y' has {tuple(y_BCHW.shape[1:])}; a picture is (3, height,"
            f" width) in [-1, 1]. If the picture has another size, {GIVE_SIZE}"
        )
