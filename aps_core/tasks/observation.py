"""The measurement of a restoration: reads it from the uploads, and cuts it into tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.imaging import images
from aps_core.imaging.resampling import resize
from aps_core.imaging.tiling import Span, Tile
from aps_core.operators import Bound, OperatorSpec
from aps_core.tasks.masks import mask_source

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.tasks.base import Inputs, Size
else:
    torch = lazy_import("torch")


def observation(
    inputs: Inputs, operator: OperatorSpec, size: Size, device: torch.device | str
) -> tuple[Tensor, Tensor | None]:
    """The upload (3, h, w) in [-1, 1], and its mask at the same size (1 = known) if the operator
    needs one.

    Args:
        inputs: pictures of the job.
        operator: the degradation; it may reduce the upload's colours.
        size: width and height to which the upload is reduced.
        device: where the tensors are kept.
    """
    y_CHW = images.to_tensor(inputs.picture()).to(device)
    mask_HW = None
    if operator.needs_mask:
        source = mask_source(inputs)
        assert source is not None  # ``RestoreSpec.check`` rejects this
        mask_HW = images.mask_to_tensor(source).to(device)
    width, height = size
    if (height, width) != y_CHW.shape[-2:]:
        y_CHW = resize(y_CHW, (height, width))
        if mask_HW is not None:
            mask_HW = (resize(mask_HW[None], (height, width))[0] > 0.999).float()
    return operator.measurement(y_CHW), mask_HW


@dataclass(frozen=True)
class WholeMeasurement:
    """The measurement of a picture that is restored in tiles, in main memory.

    Args:
        operator: the degradation at the working size; it has a support.
        y_CHW: measured values.
        mask_HW: known pixels, 1 = known, if the operator needs a mask.
        beyond: pixels that are restored beyond every border of the picture; the tiles begin there.
    """

    operator: OperatorSpec
    y_CHW: Tensor
    mask_HW: Tensor | None
    beyond: int = 0

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
        inside = (
            self._from(tile.rows.start, rows),
            self._from(tile.columns.start, columns),
        )
        return operator.inside(*inside), self.y_CHW[:, rows, columns].to(device)

    def sample(self, tiles: Sequence[Tile]) -> tuple[Tensor, Tensor | None]:
        """The measurement inside some tiles, one below the other, and what is known of it."""
        windows = [self._window(tile) for tile in tiles]
        width = min(columns.stop - columns.start for _, columns in windows)

        def stacked(values: Tensor) -> Tensor:
            parts = [values[..., rows, columns][..., :width] for rows, columns in windows]
            return torch.cat(parts, -2)

        known = None if self.mask_HW is None else stacked(self.mask_HW)[None, None]
        return stacked(self.y_CHW), known

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
        height, width = self.y_CHW.shape[-2:]
        return self._measured(tile.rows, height, 0), self._measured(tile.columns, width, 0)

    def _inner(self, tile: Tile) -> tuple[slice, slice]:
        """Rows and columns of the measurement that only depend on a tile."""
        support = self.operator.support
        assert support is not None  # ``RestoreSpec.tiling`` rejects this
        height, width = self.y_CHW.shape[-2:]
        return (
            self._measured(tile.rows, height, support.margin),
            self._measured(tile.columns, width, support.margin),
        )

    def _measured(self, span: Span, count: int, margin: int) -> slice:
        """Of ``count`` measured values along an axis, those at the pixels of ``span``, without a
        ``margin`` at its neighbours.
        """
        start = span.start - self.beyond + (0 if span.rise is None else margin)
        stop = span.stop - self.beyond - (0 if span.fall is None else margin)
        return slice(max(0, start // self._scale), min(count, stop // self._scale))

    def _from(self, start: int, values: slice) -> slice:
        """``values`` of the measurement, counted from those of a tile that begins at ``start``."""
        first = (start - self.beyond) // self._scale
        return slice(values.start - first, values.stop - first)
