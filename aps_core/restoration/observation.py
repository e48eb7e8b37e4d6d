"""The measurement at the working size, as a whole or cut into tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

from aps_core._lazy import lazy_import
from aps_core.adapters.function import FunctionOperator, check_made
from aps_core.errors import InvalidSpec
from aps_core.imaging.resampling import resize
from aps_core.imaging.tiling import Span, Tile
from aps_core.operators import Bound, OperatorSpec
from aps_core.restoration.layout import Layout
from aps_core.restoration.measurement import Measurement

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


@dataclass(frozen=True)
class Observation:
    """What was measured, and the operator as a likelihood sees it, without rounding."""

    operator: OperatorSpec
    """The degradation at the working size."""
    y_BCHW: Tensor
    mask_HW: Tensor | None
    """1 = known, at the size of the measurement, if the operator needs a mask."""
    beyond: int = 0
    """Pixels that are restored beyond every border of the picture; tiles begin there."""

    @classmethod
    def of(cls, measurement: Measurement, layout: Layout, device: torch.device) -> Self:
        """Reads a measurement, and reduces it as ``layout`` says. Whole pictures are kept on
        ``device``, those restored in tiles in main memory.

        Raises:
            InvalidSpec: the operator does not make measurements of this shape.
        """
        where = device if layout.tiling is None else "cpu"
        y_BCHW, mask_HW = measurement.values.to(where), None
        if layout.operator.needs_mask:
            mask_HW = measurement.mask_HW
            assert mask_HW is not None  # ``Layout.check`` rejects this
            mask_HW = mask_HW.to(where)
        if layout.measured != layout.upload:
            width, height = layout.measured
            y_BCHW = torch.stack([resize(y_CHW, (height, width)) for y_CHW in y_BCHW])
            if mask_HW is not None:
                mask_HW = (resize(mask_HW[None], (height, width))[0] > 0.999).float()
        y_BCHW = torch.stack([layout.operator.measurement(y_CHW) for y_CHW in y_BCHW])
        observed = cls(layout.working.without_rounding(), y_BCHW, mask_HW, layout.beyond)
        if measurement.upload is None or isinstance(layout.operator, FunctionOperator):
            check_made(observed.bound, observed.shape, y_BCHW)
        return observed

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (3, H, W) of the picture behind the measurement."""
        channels, height, width = self.y_BCHW.shape[1:]
        return (3, *self.operator.image_shape((channels, height, width))[1:])

    @cached_property
    def bound(self) -> Bound:
        """A for the whole picture."""
        return self.operator.bind(self.shape, self.y_BCHW.device, self.mask_HW)

    @property
    def wide(self) -> Bound:
        """A for the picture with what lies beyond its borders."""
        if not self.beyond:
            return self.bound
        return self.operator.bind_wide(self.shape, self.beyond, self.y_BCHW.device)

    def part(self, tile: Tile, device: torch.device) -> tuple[Bound, Tensor]:
        """Operator and measurement (3, h, w) of a tile, without values that also depend on pixels
        outside it.
        """
        rows, columns = self._inner(tile)
        width, height = tile.size
        mask_HW = None
        if self.mask_HW is not None:
            first, second = self._window(tile)
            mask_HW = self.mask_HW[first, second].to(device)
        operator = self.operator.bind((3, height, width), device, mask_HW)
        inside = self._from(tile.rows.start, rows), self._from(tile.columns.start, columns)
        return operator.inside(*inside), self.y_BCHW[0, :, rows, columns].to(device)

    def sample(self, tiles: Sequence[Tile]) -> tuple[Tensor, Tensor | None]:
        """The measurement inside some tiles, one below the other, and what is known of it."""
        windows = [self._window(tile) for tile in tiles]
        width = min(columns.stop - columns.start for _, columns in windows)

        def stacked(values: Tensor) -> Tensor:
            parts = [values[..., rows, columns][..., :width] for rows, columns in windows]
            return torch.cat(parts, -2)

        known = None if self.mask_HW is None else stacked(self.mask_HW)[None, None]
        return stacked(self.y_BCHW[0]), known

    def check_known(self, tile: Tile) -> None:
        """Checks that the mask leaves something known.

        Raises:
            InvalidSpec: it does not.
        """
        rows, columns = self._inner(tile)
        if self.mask_HW is not None and not bool(self.mask_HW[rows, columns].any()):
            raise InvalidSpec(
                f"The mask leaves no pixel known in the tile at column {tile.columns.start}, row"
                f" {tile.rows.start}; set a larger 'tile', or leave it out and set 'working_size'."
            )

    @property
    def _scale(self) -> int:
        """Pixels of the picture per measured pixel along one axis."""
        return self.operator.image_shape((3, 1, 1))[1]

    def _window(self, tile: Tile) -> tuple[slice, slice]:
        """Rows and columns of the measurement inside a tile."""
        height, width = self.y_BCHW.shape[-2:]
        return self._measured(tile.rows, height, 0), self._measured(tile.columns, width, 0)

    def _inner(self, tile: Tile) -> tuple[slice, slice]:
        """Rows and columns of the measurement that only depend on a tile."""
        support = self.operator.support
        assert support is not None  # ``Layout.tiling`` rejects this
        height, width = self.y_BCHW.shape[-2:]
        return (
            self._measured(tile.rows, height, support.margin),
            self._measured(tile.columns, width, support.margin),
        )

    def _measured(self, span: Span, count: int, margin: int) -> slice:
        """Which of ``count`` measured values along an axis lie at the pixels of ``span``, without a
        ``margin`` at its neighbours.
        """
        start = span.start - self.beyond + (0 if span.rise is None else margin)
        stop = span.stop - self.beyond - (0 if span.fall is None else margin)
        return slice(max(0, start // self._scale), min(count, stop // self._scale))

    def _from(self, start: int, values: slice) -> slice:
        """``values`` of the measurement, counted from those of a tile that begins at ``start``."""
        first = (start - self.beyond) // self._scale
        return slice(values.start - first, values.stop - first)
