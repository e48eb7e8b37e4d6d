"""Faces that can set English text, by split."""

from __future__ import annotations

import string
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fontTools.ttLib import TTFont, TTLibError
from PIL import ImageFont

from training.documents.sources import FONTS, Split

NEEDED = {ord(c) for c in string.ascii_letters + string.digits + ".,;:!?'()-/"}

SKIPPED = ("math", "dingbat", "symbol", "ornament", "emoji", "initials", "icons")
"""Parts of file names of faces that are not for running text."""


@dataclass(frozen=True)
class Face:
    """One font file."""

    path: Path
    family: str
    package: str

    def at(self, em: int) -> ImageFont.FreeTypeFont:
        """The face at ``em`` pixels."""
        return _load(str(self.path), em)


@cache
def _load(path: str, em: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, em, layout_engine=ImageFont.Layout.BASIC)


def faces(unpacked: Path, split: Split) -> list[Face]:
    """Every usable face of a split, sorted; the same family in two formats counts once."""
    found: dict[tuple[str, str], Face] = {}
    for package in FONTS[split]:
        for path in sorted((unpacked / package).rglob("*.[ot]tf")):
            name = _latin_family(path) if path.is_file() else None  # links may lead outside
            if name is not None and not any(part in path.name.lower() for part in SKIPPED):
                found.setdefault((package, path.stem.lower()), Face(path, name, package))
    return sorted(found.values(), key=lambda f: str(f.path))


def _latin_family(path: Path) -> str | None:
    """The family's name if the face has every needed character."""
    try:
        with TTFont(path, lazy=True) as font:
            characters = font.getBestCmap() or {}
            name = font["name"].getDebugName(1)
    except TTLibError:
        return None
    return name if characters.keys() >= NEEDED else None
