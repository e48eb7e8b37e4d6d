"""Contact sheets: every picture of a run before and after, with its name and verdict."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from PIL import Image, ImageDraw, ImageFont

from aps_core.imaging import images

SIDE, GAP, LINE = 208, 12, 20
"""Pixels: longest side of a thumbnail by default, space around it, height of a line of text."""
COLUMNS, MOST = 2, 40
"""Pairs beside each other, and in one sheet."""
LINES = 3
"""Lines below a pair: its name and up to two more."""
INK, MUTED, EMPTY = "#1b1a17", "#615e56", "#eceae4"
NOTICE = "Results are plausible samples, not evidence of what was there."


@dataclass(frozen=True)
class Cell:
    """One picture: ``after`` is None if it has no result."""

    name: str
    words: tuple[str, ...]
    before: Image.Image | None
    after: Image.Image | None


def thumbnail(data: bytes, longest: int = SIDE) -> Image.Image:
    """A file's picture, ``longest`` pixels on its longer side; small ones are enlarged.

    Raises:
        ImageRejected, ImageTooLarge: see :func:`aps_core.imaging.images.open_image`.
    """
    image = images.open_image(data).rgb()
    scale = longest / max(image.size)
    filtering = Image.Resampling.NEAREST if scale >= 2 else Image.Resampling.LANCZOS
    width, height = (max(1, round(side * scale)) for side in image.size)
    return image.resize((width, height), filtering)


def sheets(cells: Sequence[Cell], longest: int = SIDE) -> Iterator[Image.Image]:
    """Sheets of at most ``MOST`` pairs of pictures of at most ``longest`` pixels a side."""
    for start in range(0, len(cells), MOST):
        yield _sheet(cells[start : start + MOST], longest)


def _sheet(cells: Sequence[Cell], longest: int) -> Image.Image:
    columns = min(COLUMNS, len(cells))
    height = max(cell.before.height if cell.before else longest for cell in cells)
    pair, row = 2 * longest + 3 * GAP, height + LINES * LINE + 2 * GAP
    rows = -(-len(cells) // columns)
    size = (columns * (pair + GAP) + GAP, rows * row + 2 * (LINE + GAP))
    sheet = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(sheet)
    for column in range(columns):
        for place, title in enumerate(("Before", "After")):
            corner = (GAP + column * (pair + GAP) + place * (longest + GAP), GAP // 2)
            _write(pen, corner, title, longest, MUTED)
    for number, cell in enumerate(cells):
        left = GAP + number % columns * (pair + GAP)
        top = GAP + LINE + number // columns * row
        for place, picture in enumerate((cell.before, cell.after)):
            shown = picture or _blank(cell.before, longest)
            inset = ((longest - shown.width) // 2, (height - shown.height) // 2)
            sheet.paste(shown, (left + place * (longest + GAP) + inset[0], top + inset[1]))
        for line, text in enumerate((cell.name, *cell.words)[:LINES]):
            below = (left, top + height + 4 + line * LINE)
            _write(pen, below, text, 2 * longest + GAP, INK if line == 0 else MUTED)
    _write(pen, (GAP, sheet.height - GAP - LINE), NOTICE, sheet.width - 2 * GAP, MUTED)
    return sheet


def _blank(like: Image.Image | None, longest: int) -> Image.Image:
    """Stands for a picture that does not exist."""
    return Image.new("RGB", like.size if like else (longest, longest), EMPTY)


@cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """A font of this system, because Pillow's own has no letters outside ASCII; else that one."""
    for name in ("DejaVuSans.ttf", "LiberationSans-Regular.ttf", "Arial.ttf", "arial.ttf"):
        with suppress(OSError):
            return ImageFont.truetype(name, 13)
    return ImageFont.load_default(15)


def _write(
    pen: ImageDraw.ImageDraw, place: tuple[int, int], text: str, width: int, ink: str
) -> None:
    """Writes a line, shortened to ``width`` pixels."""
    font, shown = _font(), unicodedata.normalize("NFC", text)
    while len(shown) > 1 and pen.textlength(shown, font) > width:
        shown = f"{shown.rstrip('…')[:-1]}…"
    pen.text(place, shown, fill=ink, font=font)
