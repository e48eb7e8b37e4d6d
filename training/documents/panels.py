"""Screens drawn by hand: windows, dialogs, tables, charts and flow charts; (H, W, 3) uint8."""

from __future__ import annotations

import colorsys
import math
import random

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from training.documents.fonts import Face
from training.documents.pages import Tile, wrap
from training.documents.words import Writer

Colour = tuple[int, int, int]


def colour(rng: random.Random, value: tuple[float, float], saturation: float) -> Colour:
    """A random colour with HSV value in the given range and saturation up to ``saturation``."""
    rgb = colorsys.hsv_to_rgb(rng.random(), saturation * rng.random() ** 2, rng.uniform(*value))
    return (round(255 * rgb[0]), round(255 * rgb[1]), round(255 * rgb[2]))


class Theme:
    """Colours, faces and measures of one screen."""

    def __init__(self, rng: random.Random, faces: list[Face]) -> None:
        dark = rng.random() < 0.3
        face = rng.choice(faces)
        self.em = rng.randint(9, 22)
        self.font: ImageFont.FreeTypeFont = face.at(self.em)
        self.small: ImageFont.FreeTypeFont = face.at(max(8, round(self.em * 0.8)))
        self.back = colour(rng, (0.05, 0.25) if dark else (0.88, 1.0), 0.15)
        self.field = colour(rng, (0.0, 0.15) if dark else (0.95, 1.0), 0.05)
        self.text = colour(rng, (0.8, 1.0) if dark else (0.0, 0.3), 0.2)
        self.edge = colour(rng, (0.3, 0.5) if dark else (0.55, 0.8), 0.2)
        self.accents = [colour(rng, (0.35, 1.0), 1.0) for _ in range(5)]
        self.radius = rng.choice((0, 0, 3, 6))
        self.line = rng.choice((1, 1, 1, 2))


class PanelMaker:
    """Draws screens of ``size`` by ``size`` pixels."""

    def __init__(self, faces: list[Face], lines: list[str], size: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.faces = faces
        self.writer = Writer(lines, self.rng)
        self.size = size

    def panel(self) -> Tile:
        """One screen filled with parts of random kinds."""
        theme = Theme(self.rng, self.faces)
        image = Image.new("RGB", (self.size, self.size), theme.back)
        draw = ImageDraw.Draw(image)
        x = 0
        while x < self.size:
            width = self.rng.randint(120, 300)
            y = 0
            while y < self.size:
                height = self.rng.randint(60, 200)
                part = self.rng.choice(
                    (self._controls, self._table, self._chart, self._flow, self._bar, self._note)
                )
                part(draw, (x, y, x + width - 8, y + height - 8), theme)
                y += height
            x += width
        return np.asarray(image).copy()

    def _box(
        self, draw: ImageDraw.ImageDraw, box: tuple[float, ...], theme: Theme, fill: Colour
    ) -> None:
        draw.rounded_rectangle(box, theme.radius, fill, theme.edge, theme.line)

    def _controls(self, draw: ImageDraw.ImageDraw, box: tuple[int, ...], t: Theme) -> None:
        """Buttons, check boxes, radio buttons, text fields."""
        x0, y, x1, y1 = box
        step = round(t.em * 1.9)
        while y + step < y1:
            kind = self.rng.randrange(4)
            label = self.writer.label(3)
            end = x0 + t.font.getlength(label) + t.em * 1.5
            mid = y + t.em * 0.3
            if kind == 0:
                fill = self.rng.choice((t.back, t.field, t.accents[0]))
                self._box(draw, (x0, y, end, y + t.em * 1.6), t, fill)
                draw.text((x0 + t.em * 0.7, y + t.em * 0.2), label, t.text, t.font)
            elif kind == 1:
                self._box(draw, (x0, mid, x0 + t.em, mid + t.em), t, t.field)
                if self.rng.random() < 0.6:
                    tick = [(x0 + 2, mid + t.em / 2), (x0 + t.em / 3, mid + t.em - 3)]
                    draw.line([*tick, (x0 + t.em - 2, mid + 2)], t.accents[1], 2)
                draw.text((x0 + t.em * 1.4, y + t.em * 0.2), label, t.text, t.font)
            elif kind == 2:
                draw.ellipse((x0, mid, x0 + t.em, mid + t.em), t.field, t.edge, t.line)
                if self.rng.random() < 0.5:
                    inset = t.em * 0.28
                    draw.ellipse(
                        (x0 + inset, mid + inset, x0 + t.em - inset, mid + t.em - inset), t.text
                    )
                draw.text((x0 + t.em * 1.4, y + t.em * 0.2), label, t.text, t.font)
            else:
                self._box(draw, (x0, y, x1, y + t.em * 1.6), t, t.field)
                draw.text((x0 + t.em * 0.4, y + t.em * 0.2), self.writer.number(), t.text, t.font)
            y += step

    def _table(self, draw: ImageDraw.ImageDraw, box: tuple[int, ...], t: Theme) -> None:
        """A list with a head and striped rows."""
        x0, y0, x1, y1 = box
        draw.rectangle(box, t.field, t.edge)
        row = round(t.em * 1.5)
        for i, y in enumerate(range(y0, y1 - row, row)):
            if i == 0 or self.rng.random() < 0.08:
                draw.rectangle((x0, y, x1, y + row), t.edge if i == 0 else t.accents[2])
            for j, x in enumerate(range(x0 + 4, x1 - 3 * t.em, t.em * 5)):
                text = self.writer.label(1) if j == 0 or i == 0 else self.writer.number()
                draw.text((x, y + t.em * 0.2), text[:8], t.text, t.small)
            if self.rng.random() < 0.5:
                draw.line((x0, y + row, x1, y + row), t.edge)

    def _chart(self, draw: ImageDraw.ImageDraw, box: tuple[int, ...], t: Theme) -> None:
        """Bars, curves or a pie with axes."""
        x0, y0, x1, y1 = box
        kind, n = self.rng.randrange(3), self.rng.randint(4, 14)
        if kind == 2:
            side, start = min(x1 - x0, y1 - y0), 0.0
            while start < 360:
                end = min(360.0, start + self.rng.uniform(20, 120))
                draw.pieslice(
                    (x0, y0, x0 + side, y0 + side), start, end, self.rng.choice(t.accents), t.back
                )
                start = end
            return
        draw.line([(x0, y0), (x0, y1), (x1, y1)], t.text, t.line)
        heights = [self.rng.random() for _ in range(n + 1)]
        xs = [x0 + (x1 - x0) * i / n for i in range(n + 1)]
        ys = [y1 - h * (y1 - y0) * 0.9 for h in heights]
        if kind == 0:
            for i in range(n):
                draw.rectangle((xs[i] + 3, ys[i], xs[i + 1], y1), t.accents[i % 2])
        else:
            for k in range(self.rng.randint(1, 3)):
                curve = [(x, y1 - (y1 - y) * (k + 1) / 3) for x, y in zip(xs, ys, strict=True)]
                draw.line(curve, t.accents[k], self.rng.randint(1, 3))
        draw.text((x0 + 4, y0), self.writer.number(), t.text, t.small)

    def _flow(self, draw: ImageDraw.ImageDraw, box: tuple[int, ...], t: Theme) -> None:
        """Boxes with labels joined by arrows."""
        x0, y0, x1, y1 = box
        height = t.em * 2
        previous: tuple[float, float] | None = None
        for y in range(y0, y1 - height, round(height * 1.8)):
            label = self.writer.label(2)
            left = self.rng.uniform(x0, max(x0, x1 - t.em * 8))
            right = left + t.font.getlength(label) + t.em
            centre = (left + right) / 2
            if previous:
                self._arrow(draw, previous, (centre, y), t)
            fill = self.rng.choice((t.field, t.back, t.accents[3]))
            if self.rng.random() < 0.3:
                draw.ellipse((left - 6, y, right + 6, y + height), fill, t.text, t.line)
            else:
                self._box(draw, (left, y, right, y + height), t, fill)
            draw.text((left + t.em / 2, y + t.em * 0.4), label, t.text, t.font)
            previous = (centre, y + height)

    def _arrow(
        self, draw: ImageDraw.ImageDraw, a: tuple[float, float], b: tuple[float, float], t: Theme
    ) -> None:
        draw.line((a, b), t.text, t.line)
        angle = math.atan2(b[1] - a[1], b[0] - a[0])
        tips = [
            (b[0] - 7 * math.cos(angle + d), b[1] - 7 * math.sin(angle + d)) for d in (0.4, -0.4)
        ]
        draw.polygon([b, *tips], t.text)

    def _bar(self, draw: ImageDraw.ImageDraw, box: tuple[int, ...], t: Theme) -> None:
        """A title bar or a row of tabs over a plain or shaded area."""
        x0, y0, x1, y1 = box
        depth = self.rng.choice((0.0, 0.2))
        for y in range(y0, y1):
            level = (y - y0) / (y1 - y0) * depth
            shade = tuple(round(c * (1 - level)) for c in t.field)
            draw.line((x0, y, x1, y), shade)
        draw.rectangle((x0, y0, x1, y0 + t.em * 2), self.rng.choice(t.accents))
        draw.text((x0 + t.em, y0 + t.em * 0.4), self.writer.label(3), t.field, t.font)
        draw.rectangle((x0, y0, x1, y1), None, t.edge, t.line)

    def _note(self, draw: ImageDraw.ImageDraw, box: tuple[int, ...], t: Theme) -> None:
        """A few lines of text."""
        x0, y, x1, y1 = box
        for line in wrap(self.writer.prose(300), t.font, x1 - x0):
            if y + t.em > y1:
                break
            draw.text((x0, y), line, t.text, t.font)
            y += round(t.em * 1.4)
