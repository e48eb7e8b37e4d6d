"""Geometry of overlapping tiles that cover a picture: where they lie and how they are blended.

Needs no torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from aps_core.errors import InvalidSpec


class Span(NamedTuple):
    """Pixels of one tile along one axis, and its crossfades with its neighbours."""

    start: int
    stop: int
    """Exclusive."""
    rise: int | None
    """First pixel of the crossfade with the previous tile; None at the picture's edge."""
    fall: int | None
    """First pixel of the crossfade with the next tile; None at the picture's edge."""

    def weights(self, fade: int) -> list[float]:
        """Weight of each pixel of the tile; over all tiles the weights of a pixel sum to 1.

        Args:
            fade: pixels of a crossfade.
        """
        return [
            _ramp(pixel, self.rise, fade) * (1 - _ramp(pixel, self.fall, fade, edge=0.0))
            for pixel in range(self.start, self.stop)
        ]


class Tile(NamedTuple):
    """One tile of a picture."""

    rows: Span
    columns: Span

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.columns.stop - self.columns.start, self.rows.stop - self.rows.start


@dataclass(frozen=True)
class Tiling:
    """Overlapping tiles that cover a picture, row by row.

    Neighbours overlap by a margin of each, which is cut off, and a crossfade between the margins.

    Args:
        width: width of the picture in pixels.
        height: height of the picture in pixels.
        tile: longest side of a tile in pixels.
        margin: pixels cut off at every side of a tile that is not an edge of the picture.
        fade: pixels of a crossfade.
        grid: tiles begin at multiples of this many pixels.

    Raises:
        InvalidSpec: a tile is too small for its margins and crossfades.
    """

    width: int
    height: int
    tile: int
    margin: int
    fade: int
    grid: int

    def __post_init__(self) -> None:
        # room for two margins, two crossfades that do not meet, and rounding to the grid
        least = 2 * self.margin + 3 * self.fade + 3 * self.grid
        if self.tile < least:
            raise InvalidSpec(
                f"Tiles of {self.tile} pixels are too small: this degradation needs an overlap of"
                f" {2 * self.margin + self.fade} pixels; set 'tile' to {least} or more."
            )

    @cached_property
    def rows(self) -> list[Span]:
        """The tiles' vertical positions."""
        return self._spans(self.height)

    @cached_property
    def columns(self) -> list[Span]:
        """The tiles' horizontal positions."""
        return self._spans(self.width)

    @cached_property
    def tiles(self) -> list[Tile]:
        """All tiles, row by row."""
        return [Tile(rows, columns) for rows in self.rows for columns in self.columns]

    @property
    def largest(self) -> tuple[int, int]:
        """Width and height of the largest tile in pixels."""
        widths, heights = zip(*(tile.size for tile in self.tiles), strict=True)
        return max(widths), max(heights)

    def evenly(self, count: int) -> list[Tile]:
        """At most ``count`` tiles, evenly spread."""
        return self.tiles[:: math.ceil(len(self.tiles) / count)]

    def tokens(self, stride: int) -> int:
        """Tokens of all tiles, for a tokenizer of ``stride`` pixels per token."""
        rows, columns = (
            sum(-(-(span.stop - span.start) // stride) for span in spans)
            for spans in (self.rows, self.columns)
        )
        return rows * columns

    def _spans(self, length: int) -> list[Span]:
        side = self.tile // self.grid * self.grid
        if length <= side:
            return [Span(0, length, None, None)]
        stride = (side - 2 * self.margin - self.fade) // self.grid
        # counted in grid cells; evenly spaced, so that no tile is almost covered by its neighbours
        last = math.ceil((length - side) / self.grid)
        count = 1 + math.ceil(last / stride)
        starts = [number * last // (count - 1) * self.grid for number in range(count)]
        stops = [min(start + side, length) for start in starts]
        fades = [
            (start + stop - self.fade) // 2
            for start, stop in zip(starts[1:], stops[:-1], strict=True)
        ]
        return [
            Span(*span) for span in zip(starts, stops, [None, *fades], [*fades, None], strict=True)
        ]


def _ramp(pixel: int, first: int | None, fade: int, edge: float = 1.0) -> float:
    """Smooth step from 0 to 1 over ``fade`` pixels from ``first`` on; ``edge`` without a
    crossfade.
    """
    if first is None:
        return edge
    share = min(1.0, max(0.0, (pixel - first + 0.5) / fade))
    return share * share * (3 - 2 * share)
