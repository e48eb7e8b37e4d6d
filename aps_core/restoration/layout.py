"""Sizes of a restoration, from the upload to the tiles. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from aps_core.errors import ImageTooLarge, InvalidSpec
from aps_core.imaging.images import MAX_PIXELS
from aps_core.imaging.tiling import Tiling
from aps_core.operators import OperatorSpec
from aps_core.types import Size

MARGIN, FADE = 8, 16
"""Pixels cut off at a tile's sides, where the prior sees less context, and of a crossfade."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What is measured, restored and sampled of an upload."""

    operator: OperatorSpec
    """The degradation, with lengths in pixels of the upload."""
    upload: Size
    stride: int
    """Pixels per token of the prior."""
    samples: int = 1
    working_size: int | None = None
    """Longest side of the restored picture; None: the upload is used at its size."""
    tile: int | None = None
    """Longest side of a tile; None: the picture is restored as a whole."""
    extends: bool = False
    """Whether the sampler restores what lies beyond the borders of blurred pictures."""

    @cached_property
    def measured(self) -> Size:
        """Size of the measurement: the upload's, reduced if ``working_size`` requires it."""
        width, height = self.upload
        longest = max(self._restored(self.upload))
        if self.working_size is None or longest <= self.working_size:
            return self.upload
        scale = self.working_size / longest
        return max(1, int(width * scale)), max(1, int(height * scale))

    @cached_property
    def picture(self) -> Size:
        """Size of the restored picture."""
        return self._restored(self.measured)

    def _restored(self, measured: Size) -> Size:
        _, height, width = self.operator.image_shape((3, measured[1], measured[0]))
        return width, height

    @property
    def reduction(self) -> float:
        """Factor by which the upload is reduced, at most 1.

        Sides are rounded down, so the longer one has the more exact factor.
        """
        return max(self.measured) / max(self.upload)

    @cached_property
    def working(self) -> OperatorSpec:
        """The operator in pixels of the measurement. This is the only place that scales it."""
        if self.measured == self.upload:
            return self.operator
        return self.operator.scaled(self.reduction)

    @cached_property
    def beyond(self) -> int:
        """Pixels that are restored beyond every border, and cut off in the end: some of what a blur
        left near a border of the upload came from there. 0 without a blur.
        """
        return self.working.beyond(self.stride) if self.extends else 0

    @cached_property
    def tiling(self) -> Tiling | None:
        """The tiles; None if the picture is restored as a whole.

        Raises:
            InvalidSpec: the operator cannot be applied to tiles, or needs larger ones.
            ImageTooLarge: the samples exceed the pixels that are kept in memory.
        """
        width, height = self.picture
        if self.tile is None or max(width, height) <= self.tile:
            return None
        support = self.working.support
        if support is None:
            raise InvalidSpec(
                f"Operator '{self.operator.type}' differs from place to place, so the picture"
                " cannot be restored in tiles; leave 'tile' out and set 'working_size'."
            )
        if width * height * self.samples > MAX_PIXELS:
            raise ImageTooLarge(
                f"All samples together would have {width * height * self.samples:,} pixels; at"
                f" most {MAX_PIXELS:,} are restored in tiles. Set a smaller 'working_size'."
            )
        return Tiling(
            width + 2 * self.beyond,
            height + 2 * self.beyond,
            tile=self.tile,
            margin=max(support.margin, MARGIN),
            fade=FADE,
            grid=support.grid,
        )

    @property
    def sampled(self) -> Size:
        """Size of the largest tile, or of the whole picture."""
        return self.picture if self.tiling is None else self.tiling.largest

    @property
    def computed(self) -> Size:
        """:attr:`sampled` with what is restored beyond the borders."""
        if self.tiling is not None:
            return self.tiling.largest
        width, height = self.picture
        return width + 2 * self.beyond, height + 2 * self.beyond

    def check(self, mask: Size | None, has_alpha: bool) -> None:
        """Checks operator, mask and tiles against the upload's size.

        Args:
            mask: width and height of the mask; None if there is none.
            has_alpha: whether the upload has transparent pixels.

        Raises:
            InvalidSpec: they are incompatible.
            ImageTooLarge: see :attr:`tiling`.
        """
        if self.operator.needs_mask and mask is None and not has_alpha:
            raise InvalidSpec(
                f"Operator '{self.operator.type}' needs a mask: send a 'mask' picture, or an image"
                " with transparent unknown pixels."
            ).at("mask")
        if mask is not None and not self.operator.needs_mask:
            raise InvalidSpec(
                f"Operator '{self.operator.type}' takes no mask; leave the 'mask' picture out."
            ).at("mask")
        check_mask_size(mask, self.upload)
        width, height = self.measured
        self.working.check_shape(self.working.image_shape((3, height, width)))
        _ = self.tiling


def check_mask_size(mask: Size | None, image: Size) -> None:
    """Checks that a mask, if there is one, has the image's size.

    Raises:
        InvalidSpec: it has not.
    """
    if mask is not None and mask != image:
        raise InvalidSpec(
            f"The mask is {mask[0]}x{mask[1]} pixels, the image {image[0]}x{image[1]}; they"
            " must have the same size."
        ).at("mask")
