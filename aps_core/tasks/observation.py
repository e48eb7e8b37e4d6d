"""The measurement of a restoration: reads it from the uploads, and cuts it into tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.imaging import images
from aps_core.imaging.resampling import resize
from aps_core.imaging.tiling import Tile
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
    """

    operator: OperatorSpec
    y_CHW: Tensor
    mask_HW: Tensor | None

    def part(self, tile: Tile, device: torch.device) -> tuple[Bound, Tensor]:
        """Operator and measurement (3, h, w) of a tile. Values that also depend on pixels outside
        it have weight 0.
        """
        rows, columns = self._window(tile)
        width, height = tile.size
        mask_HW = None if self.mask_HW is None else self.mask_HW[rows, columns].to(device)
        operator = self.operator.bind((3, height, width), device, mask_HW)
        weight = self._inner(tile)[None, None].to(device)
        if not bool(weight.all()):
            known = operator.weight
            operator = replace(operator, weight=weight if known is None else known * weight)
        return operator, self.y_CHW[:, rows, columns].to(device)

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
        rows, columns = self._window(tile)
        if self.mask_HW is not None and not bool(
            (self.mask_HW[rows, columns] * self._inner(tile)).any()
        ):
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
        rows, columns = (
            slice(span.start // self._scale, span.stop // self._scale) for span in tile
        )
        return rows, columns

    def _inner(self, tile: Tile) -> Tensor:
        """1 for measured values (h, w) that only depend on the tile, else 0."""
        support = self.operator.support
        assert support is not None  # ``RestoreSpec.tiling`` rejects this
        width, height = tile.size
        inner_HW = torch.ones(height // self._scale, width // self._scale)
        margin = support.margin // self._scale
        for values, span in ((inner_HW, tile.rows), (inner_HW.T, tile.columns)):
            if margin and span.rise is not None:
                values[:margin] = 0
            if margin and span.fall is not None:
                values[-margin:] = 0
        return inner_HW
