"""Restoration: finds a picture that agrees with a degraded upload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field

from aps_core.errors import ImageTooLarge, InvalidSpec, about
from aps_core.identify.diagnosis.found import Found
from aps_core.identify.kinds.unknown import UnknownOperator
from aps_core.imaging import noise
from aps_core.imaging.images import MAX_PIXELS, MaskCoverage, Picture
from aps_core.imaging.tiling import Tiling
from aps_core.operators import AnyOperator, OperatorSpec
from aps_core.operators.kernel_blur import check_kernel_size, kernel_rows
from aps_core.tasks.base import Inputs, RunContext, Size, Slot, check_part
from aps_core.tasks.content import KEEPS_DEFAULT, warned
from aps_core.tasks.masks import check_coverage, check_mask_size, mask_slot
from aps_core.tasks.pictures import MeasuredTaskSpec
from aps_core.tasks.results import PictureResult

if TYPE_CHECKING:
    from torch import Tensor


MARGIN, FADE = 8, 16
"""Pixels cut off at a tile's sides, where the prior sees less context, and of a crossfade."""

Sigma = Annotated[float, Field(ge=0, le=1)] | Literal["auto"]


class RestoreSpec(MeasuredTaskSpec):
    """Restore a degraded picture: find a plausible picture whose measurement agrees with the
    upload.
    """

    type: Literal["restore"] = "restore"
    prior: str = Field(
        "embedded",
        min_length=1,
        max_length=64,
        description=(
            "Prior to sample from. If neither a prior nor a prompt nor a sampler is given, the one"
            " specialised in photographs, or in pages and screens, is chosen, if there is one."
        ),
        json_schema_extra={"x-chosen-unless": [*KEEPS_DEFAULT]},  # forms offer to leave it out
    )
    operator: AnyOperator = Field(description="How the picture was degraded.")
    sigma: Sigma = Field(
        "auto",
        description=(
            "Noise standard deviation on the [-1, 1] scale (0.05 is 6.4 grey levels), or 'auto' to"
            " estimate it."
        ),
    )
    noise: Literal["gaussian", "poisson"] = Field(
        "gaussian",
        description=(
            "Noise of the measurement: the same everywhere, or photon noise, which grows with"
            " brightness."
        ),
    )
    peak: float = Field(
        100.0,
        gt=0,
        le=1e6,
        description="Mean photon count of a white pixel; fewer photons mean more noise.",
        json_schema_extra={"x-when": {"noise": "poisson"}},
    )
    working_size: int | None = Field(
        None,
        ge=32,
        le=4096,
        description=(
            "Reduce the upload so that the restored picture's longer side is at most this many"
            " pixels."
        ),
    )
    tile: int | None = Field(
        None,
        ge=64,
        le=2048,
        description=(
            "Restore a larger picture in overlapping tiles of at most this many pixels a side, one"
            " after another: the size is then limited by time, not by memory."
        ),
    )

    pictures: ClassVar[Mapping[str, bool]] = {
        "image": True,
        **dict.fromkeys(("mask", "kernel", "whole"), False),
    }

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Weights needed by operator and loss."""
        return *self.operator.checkpoints, *super().checkpoints

    def output_size(self, image: Size | None) -> Size:
        """Size of the restored picture for an upload of size ``image`` (width, height)."""
        width, height = self.measurement_size(_given(image))
        _, out_height, out_width = self.operator.image_shape((3, height, width))
        return out_width, out_height

    def tiling(self, image: Size | None) -> Tiling | None:
        """The tiles for an upload of size ``image``; None if the picture is restored as a whole.

        Raises:
            InvalidSpec: the operator cannot be applied to tiles, or needs larger ones.
            ImageTooLarge: the samples exceed the pixels that are kept in memory.
        """
        width, height = self.output_size(image)
        if self.tile is None or max(width, height) <= self.tile:
            return None
        support = self.working_operator(_given(image)).support
        if support is None:
            raise InvalidSpec(
                f"Operator '{self.operator.type}' differs from place to place, so the picture"
                " cannot be restored in tiles; leave 'tile' out and set 'working_size'."
            )
        if width * height * self.num_samples > MAX_PIXELS:
            raise ImageTooLarge(
                f"All samples together would have {width * height * self.num_samples:,} pixels; at"
                f" most {MAX_PIXELS:,} are restored in tiles. Set a smaller 'working_size'."
            )
        more = 2 * self.beyond(_given(image))
        return Tiling(
            width + more,
            height + more,
            tile=self.tile,
            margin=max(support.margin, MARGIN),
            fade=FADE,
            grid=support.grid,
        )

    def sampled_size(self, image: Size | None) -> Size:
        """The largest tile, or the whole picture."""
        tiling = self.tiling(image)
        return self.output_size(image) if tiling is None else tiling.largest

    def beyond(self, image: Size, kernel: Picture | None = None) -> int:
        """Pixels that are restored beyond every border, and cut off in the end: some of what a blur
        left near a border of the upload came from there. 0 without a blur.
        """
        if not self.settings().beyond_borders:
            return 0
        return self.working_operator(image, kernel).beyond(self.prior_spec().stride)

    def computed_size(self, image: Size | None) -> Size:
        """Includes what is restored beyond the borders."""
        if (tiling := self.tiling(image)) is not None:
            return tiling.largest
        (width, height), more = self.output_size(image), 2 * self.beyond(_given(image))
        return width + more, height + more

    def work(self, image: Size | None) -> tuple[int, int]:
        """All tiles, and identifying an unknown operator."""
        tokens, passes = super().work(image)
        stride = self.prior_spec().stride
        if (tiling := self.tiling(image)) is not None:
            tokens = tiling.tokens(stride) * self.num_samples
        if isinstance(self.operator, UnknownOperator):
            passes += -(-self.operator.token_passes(stride) // tokens)
        return tokens, passes

    def tokens_at_once(self, image: Size | None) -> int:
        """Those of the largest tile, or all."""
        return super().work(image)[0]

    def default_sampler(self) -> str:
        """The prior's choice."""
        return self.prior_spec().restoring_sampler

    def reduced_size(self, image: Size | None) -> Size | None:
        """The measurement's size, if ``working_size`` reduces the upload."""
        size = self.measurement_size(_given(image))
        return None if size == image else size

    def measurement_size(self, image: Size) -> Size:
        """Size of the measurement: the upload's, reduced if ``working_size`` requires it."""
        width, height = image
        _, out_height, out_width = self.operator.image_shape((3, height, width))
        if self.working_size is None or max(out_height, out_width) <= self.working_size:
            return image
        scale = self.working_size / max(out_height, out_width)
        return max(1, int(width * scale)), max(1, int(height * scale))

    def check(self, image: Size | None, mask: Size | None, has_alpha: bool) -> None:
        """Checks prompt, operator shape and mask."""
        self.prior_spec().check_prompt(self.prompt)
        image = _given(image)
        if self.operator.needs_mask and mask is None and not has_alpha:
            raise InvalidSpec(
                f"Operator '{self.operator.type}' needs a mask: send a 'mask' picture, or an image"
                " with transparent unknown pixels."
            ).at("mask")
        if mask is not None and not self.operator.needs_mask:
            raise InvalidSpec(
                f"Operator '{self.operator.type}' takes no mask; leave the 'mask' picture out."
            ).at("mask")
        check_mask_size(mask, image)
        width, height = self.measurement_size(image)
        operator = self.working_operator(image)
        operator.check_shape(operator.image_shape((3, height, width)))
        self.tiling(image)

    def check_further(self, sizes: Mapping[str, Size]) -> None:
        """Checks the kernel picture, and that the image can be a part of the whole."""
        kernel, whole = sizes.get("kernel"), sizes.get("whole")
        check_part(_given(sizes.get("image")), whole)
        if self.operator.needs_kernel and kernel is None:
            raise InvalidSpec(
                f"Operator '{self.operator.type}' needs a kernel: send a 'kernel' picture, or its"
                " weights in the operator's 'kernel'."
            ).at("kernel")
        if kernel is not None:
            if not self.operator.needs_kernel:
                raise InvalidSpec(
                    f"Operator '{self.operator.type}' takes no kernel picture; leave it out."
                ).at("kernel")
            with about("kernel"):
                check_kernel_size(*kernel)

    def working_operator(self, image: Size, kernel: Picture | None = None) -> OperatorSpec:
        """The operator at the working size, for an upload of size ``image``.

        Lengths in the spec are in pixels of the upload. This is the only place that scales them.
        """
        operator: OperatorSpec = self.operator
        if kernel is not None:
            operator = operator.with_kernel(kernel_rows(kernel))
        used = self.measurement_size(image)
        # sides are rounded down, so the longer one has the more exact factor
        return operator if used == image else operator.scaled(max(used) / max(image))

    def mask_slot(self, inputs: Inputs) -> Slot | None:
        """The mask or a transparent image, if the operator needs a mask."""
        return mask_slot(inputs) if self.operator.needs_mask else None

    def check_mask(self, known: MaskCoverage) -> None:
        """Requires known and unknown pixels."""
        check_coverage(known)

    def run(self, inputs: Inputs, context: RunContext) -> PictureResult:
        """Identifies the operator if it is unknown, restores, and warns if letters may be wrong."""
        from aps_core.identify.diagnosis import shows_text

        result = self._restored(inputs, context)
        return warned(result, self.prior_spec()) if shows_text(inputs.examined()) else result

    def _restored(self, inputs: Inputs, context: RunContext) -> PictureResult:
        from aps_core.tasks.restoration import restored, searched

        if not isinstance(self.operator, UnknownOperator):
            return restored(self, inputs, context)
        found = context.found or self.operator.find(searched(self, inputs, context))
        known = self.with_found(found)
        known.check_inputs(inputs)
        result = restored(known, inputs, replace(context, found=found))
        return replace(result, found=found, notes=[*found.notes(), *result.notes])

    def with_found(self, found: Found) -> Self:
        """This task with its unknown operator identified."""
        sizes = [size for size in (self.working_size, found.working_size) if size is not None]
        photons = {} if found.peak is None else {"noise": "poisson", "peak": found.peak}
        more = photons if self.sigma == "auto" else {}
        size = min(sizes, default=None)
        return self.model_copy(update={"operator": found.operator, "working_size": size, **more})

    def with_sigma(self, y_CHW: Tensor, weight: Tensor | None, least: float) -> Self:
        """This spec with ``sigma`` as a number, at least ``least`` if it is estimated.

        With photon noise, 'auto' means the least ``sigma``.
        """
        sigma = self.sigma
        if sigma == "auto":
            gaussian = self.noise == "gaussian"
            sigma = max(least, noise.estimate_sigma(y_CHW, weight)) if gaussian else least
        return self.model_copy(update={"sigma": sigma})

    def noise_deviation(self, y_CHW: Tensor) -> float | Tensor:
        """Standard deviation of all noise of a measurement; photon noise is added to ``sigma``."""
        assert self.sigma != "auto"  # see ``with_sigma``
        sigma: float = self.sigma
        if self.noise == "gaussian":
            return sigma
        return (noise.poisson_sigma(y_CHW, self.peak).square() + sigma**2).sqrt()


def _given(image: Size | None) -> Size:
    if image is None:
        raise InvalidSpec("Restoring needs a picture; send one as 'image'.")
    return image
