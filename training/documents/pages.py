"""Pages of text as ink coverage: prose, headings, lists, tables, forms.

Arrays are (H, W) uint8, 255 = full ink.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from training.documents.fonts import Face
from training.documents.words import Writer

Tile = NDArray[np.uint8]

EM = (7.0, 64.0)
"""Type sizes of a page in pixels, drawn log-uniformly."""


class PageMaker:
    """Draws pages; every page has its own faces, sizes and layout."""

    def __init__(self, faces: list[Face], lines: list[str], size: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.families: dict[str, list[Face]] = {}
        for face in faces:
            self.families.setdefault(face.package, []).append(face)
        self.writer = Writer(lines, self.rng)
        self.size = size

    def page(self) -> Tile:
        """One page, drawn at its size (hinted) or at twice its size and reduced (unhinted)."""
        zoom = self.rng.choice((1, 2))
        em = max(7, round(EM[0] * (EM[1] / EM[0]) ** self.rng.random()))
        side = self.size * zoom
        image = Image.new("L", (side, side), 0)
        draw = ImageDraw.Draw(image)
        if self.rng.random() < 0.04:
            draw.fontmode = "1"
        layouts: tuple[Callable[[ImageDraw.ImageDraw, int], None], ...]
        layouts = (self._prose, self._table, self._form)
        self.rng.choices(layouts, (0.7, 0.18, 0.12))[0](draw, em * zoom)
        if zoom > 1:
            image = image.resize((self.size, self.size), Image.Resampling.BOX)
        return np.asarray(image).copy()

    def _font(self, em: int, package: str | None = None) -> ImageFont.FreeTypeFont:
        package = package or self.rng.choice(list(self.families))
        return self.rng.choice(self.families[package]).at(em)

    def _prose(self, draw: ImageDraw.ImageDraw, em: int) -> None:
        """Columns of paragraphs with headings, rules and lists."""
        side, rng = draw.im.size[0], self.rng
        package = rng.choice(list(self.families))
        body = self._font(em, package)
        columns = rng.choice((1, 1, 2)) if em * 16 < side else 1
        gap = round(em * rng.uniform(1, 2))
        left = round(rng.uniform(-1, 3) * em)
        width = max(em * 4, (side - 2 * max(left, 0) - gap * (columns - 1)) // columns)
        leading = rng.uniform(1.05, 1.6)
        for column in range(columns):
            x, y = left + column * (width + gap), round(rng.uniform(-1, 1) * em)
            while y < side:
                y = self._paragraph(draw, (x, y, width), (body, em, leading), package)
            if column and rng.random() < 0.3:
                draw.line((x - gap // 2, 0, x - gap // 2, side), fill=255, width=max(1, em // 16))

    def _paragraph(
        self,
        draw: ImageDraw.ImageDraw,
        box: tuple[int, int, int],
        style: tuple[ImageFont.FreeTypeFont, int, float],
        package: str,
    ) -> int:
        """Draws a heading or a paragraph at ``(x, y, width)``; returns the next free y."""
        (x, y, width), (font, em, leading), rng = box, style, self.rng
        kind = rng.random()
        if kind < 0.12:  # a heading, often in another face
            em = round(em * rng.uniform(1.1, 2.2))
            font = self._font(em, package if rng.random() < 0.6 else None)
            text = self.writer.label(5)
        else:
            if kind < 0.2:
                font = self._font(em, package)
            text = self.writer.prose(rng.randint(60, 500))
        if 0.2 < kind < 0.3:
            draw.text((x, y), rng.choice(("-", "*", "1.", "a)")), fill=255, font=font)
            x, width = x + 2 * em, width - 2 * em
        ink = 255 if rng.random() < 0.9 else rng.randint(120, 250)
        for line in wrap(text, font, width):
            if y > draw.im.size[1]:
                break
            draw.text((x, y), line, fill=ink, font=font)
            if kind > 0.97:
                draw.line(
                    (x, y + em, x + font.getlength(line), y + em), fill=ink, width=em // 14 or 1
                )
            y += max(1, round(em * leading))
        return y + round(em * rng.choice((0, 0.4, 1.0)))

    def _table(self, draw: ImageDraw.ImageDraw, em: int) -> None:
        """Rows of labels and figures with or without rules."""
        side, rng = draw.im.size[0], self.rng
        package = rng.choice(list(self.families))
        font, head = self._font(em, package), self._font(em, package)
        row_height = round(em * rng.uniform(1.2, 2.2))
        column_width = round(em * rng.uniform(4, 9))
        line = max(1, em // rng.choice((10, 16, 24)))
        rules = rng.choice(("none", "rows", "grid"))
        shade = rng.choice((0, 0, 25, 50))
        for row, y in enumerate(range(round(-em * rng.random()), side, row_height)):
            if shade and row % 2:
                draw.rectangle((0, y, side, y + row_height), fill=shade)
            if rules != "none":
                draw.line((0, y, side, y), fill=255, width=line)
            for x in range(0, side, column_width):
                text = self.writer.number() if rng.random() < 0.6 else self.writer.label(1)
                used = head if row == 0 else font
                room = max(1, column_width // em * 2)
                draw.text(
                    (x + em // 3, y + (row_height - em) // 2), text[:room], fill=255, font=used
                )
                if rules == "grid":
                    draw.line((x, 0, x, side), fill=255, width=line)

    def _form(self, draw: ImageDraw.ImageDraw, em: int) -> None:
        """Labels, lines to fill in, boxes, some answers in another face."""
        side, rng = draw.im.size[0], self.rng
        font, answer = self._font(em), self._font(max(7, round(em * rng.uniform(0.9, 1.3))))
        line = max(1, em // 14)
        step = round(em * rng.uniform(1.6, 2.6))
        for y in range(round(rng.random() * em), side, step):
            x = round(rng.uniform(0, 2) * em)
            while x < side:
                label = self.writer.label(2)
                draw.text((x, y), label, fill=255, font=font)
                x += round(font.getlength(label)) + em // 2
                end = x + round(em * rng.uniform(2, 9))
                kind = rng.random()
                if kind < 0.4:
                    draw.line((x, y + em, end, y + em), fill=255, width=line)
                elif kind < 0.7:
                    draw.rectangle((x, y - em // 6, end, y + em * 7 // 6), outline=255, width=line)
                else:
                    end = x + em
                    draw.rectangle((x, y, end, y + em), outline=255, width=line)
                    if rng.random() < 0.5:
                        draw.line((x, y, end, y + em), fill=255, width=line)
                        draw.line((x, y + em, end, y), fill=255, width=line)
                if kind < 0.7 and rng.random() < 0.7:
                    text = self.writer.number() if rng.random() < 0.5 else self.writer.label(2)
                    draw.text((x + em // 4, y), text, fill=230, font=answer)
                x = end + em


def wrap(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Greedy line breaking to ``width`` pixels; a longer word has its own line."""
    lines, current, used = [], "", 0.0
    space = font.getlength(" ")
    for word in text.split():
        length = font.getlength(word)
        if current and used + space + length > width:
            lines.append(current)
            current, used = word, length
        else:
            current, used = f"{current} {word}".lstrip(), used + space + length
    return [*lines, current] if current else lines
