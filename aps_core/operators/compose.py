"""Composition of several degradations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.operators.base import Bound, KernelRows, OperatorSpec, Shape, Support
from aps_core.operators.denoise import Denoise
from aps_core.operators.inpainting import Inpainting
from aps_core.operators.jpeg import FINEST, JPEG
from aps_core.registry import AnyOf

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.numerics.likelihood import Noise
else:
    torch = lazy_import("torch")


MOST_STAGES = 4
"""Of one composition."""
STORED = "The upload is a JPEG of quality {}: its rounding counts as noise."
"""Note where :func:`as_stored` changes an operator."""
AVERAGED = "Reducing the upload averaged the errors of its JPEG compression away."
"""Note where an operator without its rounding is used for that reason."""


class Compose(OperatorSpec):
    """Several degradations in the order in which they were applied, for example blur, reduction,
    JPEG.
    """

    alone: ClassVar[str] = "one 'compose' cannot hold another; list all stages in one"

    type: Literal["compose"] = "compose"
    stages: Annotated[
        list[Annotated[OperatorSpec, AnyOf(OperatorSpec, refusal=lambda cls: cls.alone)]],
        Field(
            min_length=1,
            max_length=MOST_STAGES,
            description="Operators in the order they were applied.",
        ),
    ]

    @property
    def each(self) -> Sequence[OperatorSpec]:
        """The stages."""
        return self.stages

    @property
    def linear(self) -> bool:  # type: ignore[override]
        """True if every stage is linear."""
        return all(step.linear for step in self.stages)

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Weights needed by any stage."""
        return tuple(name for step in self.stages for name in step.checkpoints)

    @property
    def rounding(self) -> float:
        """The largest of the stages'."""
        return float(max(step.rounding for step in self.stages))

    def likelihood_noise(self, sigma: float | Tensor) -> Noise:
        """That of the last stage, if it rounds most; what others rounded, later stages changed."""
        last = self.stages[-1]
        rounded = last.rounding == self.rounding
        return last.likelihood_noise(sigma) if rounded else super().likelihood_noise(sigma)

    def without_rounding(self) -> OperatorSpec:
        """The stages without their rounding, and without those that then do nothing."""
        stages = [step.without_rounding() for step in self.stages]
        active = [step for step in stages if not isinstance(step, Denoise)]
        return Compose(stages=active or stages[:1])

    @property
    def needs_mask(self) -> bool:
        """True if any stage needs a mask."""
        return any(step.needs_mask for step in self.stages)

    @property
    def needs_kernel(self) -> bool:
        """True if any stage needs a kernel."""
        return any(step.needs_kernel for step in self.stages)

    @property
    def support(self) -> Support | None:
        """The sum of the stages' supports, each in pixels of the restored picture."""
        pixels, grid, scale = 0, 1, 1
        for step in self.stages:
            if (support := step.support) is None:
                return None
            grid = math.lcm(grid, support.grid * scale)
            # a block that one stage touches is changed as a whole by the next
            pixels = -(-(pixels + support.pixels * scale) // grid) * grid
            scale *= step.image_shape((3, 1, 1))[1]
        return Support(pixels, grid)

    def with_kernel(self, rows: KernelRows) -> Self:
        """Fills the kernel into every stage that needs one."""
        return self.model_copy(update={"stages": [step.with_kernel(rows) for step in self.stages]})

    def scaled(self, factor: float) -> Self:
        """Scales every stage."""
        return self.model_copy(update={"stages": [step.scaled(factor) for step in self.stages]})

    def words(self) -> str:
        return ", then ".join(step.words() for step in self.stages)

    def measurement(self, upload_CHW: Tensor) -> Tensor:
        """An upload as every stage would leave it: grey behind one that removes colours."""
        return reduce(lambda y_CHW, step: step.measurement(y_CHW), self.stages, upload_CHW)

    def image_shape(self, measurement_CHW: Shape) -> Shape:
        return reduce(
            lambda shape, step: step.image_shape(shape), reversed(self.stages), measurement_CHW
        )

    def check_shape(self, shape_CHW: Shape) -> None:
        """Checks each stage against the output shape of the previous stages."""
        for number, stage in enumerate(self.stages[:-1]):
            if isinstance(stage, Inpainting):
                raise InvalidSpec(
                    "In 'compose', inpainting must come last; stage"
                    f" {number + 2} would mix known and unknown pixels."
                )
        for stage in self.stages:
            stage.check_shape(shape_CHW)
            if stage.image_shape(shape_CHW) != shape_CHW:
                return  # after a reduction, shapes depend on rounding; ``bind`` checks the rest

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        """Binds every stage to the output shape of the previous one. Inpainting must come last."""
        bound: list[Bound] = []
        for step in self.stages:
            if bound and bound[-1].weight is not None:
                raise InvalidSpec(
                    f"In 'compose', inpainting must come last; '{step.type}' after it would mix"
                    " known and unknown pixels."
                )
            bound.append(step.bind(shape_CHW, device, mask_HW))
            channels, height, width = bound[-1](torch.zeros(1, *shape_CHW, device=device)).shape[1:]
            shape_CHW = (channels, height, width)
        drawn = {
            f"{i}.{name}": value
            for i, operator in enumerate(bound)
            for name, value in operator.state().items()
        }
        *before, last = bound
        if before and last.weight is not None and isinstance(self.stages[-1], Inpainting):
            # what was clipped before some of it went missing was clipped all the same
            *before, clipping = before
            last = replace(clipping, unclipped=_missing(clipping, last), weight=last.weight)
        return Bound(
            lambda x: last.unclipped(reduce(lambda value, operator: operator(value), before, x)),
            last.weight,
            drawn,
            last.clips,
        )


def _missing(clipping: Bound, masking: Bound) -> Callable[[Tensor], Tensor]:
    return lambda x_BCHW: masking.unclipped(clipping.unclipped(x_BCHW))


def as_stored(operator: OperatorSpec, quality: int | None) -> OperatorSpec:
    """``operator``, followed by the compression of the JPEG file that holds the measurement. Its
    rounding is an error of the measurement that estimates of the noise do not see.

    Unchanged if ``quality`` is unknown or too fine to matter, and for operators that stand alone,
    name a compression themselves, or tell which pixels are missing, which comes last.
    """
    stages = [each for each in operator.each if not isinstance(each, Denoise)]
    settled = any(each.alone or isinstance(each, JPEG | Inpainting) for each in stages)
    if quality is None or quality > FINEST or settled or len(stages) == MOST_STAGES:
        return operator
    jpeg = JPEG(quality=quality)
    return Compose(stages=[*stages, jpeg]) if stages else jpeg


def with_stage(operator: OperatorSpec, stage: OperatorSpec) -> OperatorSpec:
    """``operator`` with ``stage`` in place of its own stage of that type."""
    if isinstance(operator, Compose):
        stages = [with_stage(each, stage) for each in operator.stages]
        return operator.model_copy(update={"stages": stages})
    return stage if operator.type == stage.type else operator
