r"""Builds the 30 withheld pages of ``examples/documents``: 10 rendered, 10 scans, 10 screens.

    python -m training.documents.evaluation --corpus CORPUS --text text.tar.xz \
        --out examples/documents

Deterministic. The rendered pages come with their text in ``texts.json``, for character error rates;
every second one has coloured ink, uneven light or a small tilt. Blank cuts are drawn anew.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

from training.documents import scans, sources
from training.documents.crops import DocumentCrops
from training.documents.fonts import Face, faces
from training.documents.pages import Tile, wrap
from training.documents.sources import Split
from training.documents.words import PUBLIC_DOMAIN, Writer, read_lines

SIDES = (128, 128, 128, 160, 192, 192, 224, 256, 256, 256)
EMS = (12, 20, 32, 14, 16, 26, 18, 15, 24, 36)
"""Pixels of the ten rendered pages' type."""

SCAN_FACTORS = (1.5, 2.0, 3.0, 1.6, 2.0, 2.6, 1.8, 2.0, 2.5, 3.3)
"""By which the 300-dpi scans are reduced: body type of about 13 to 28 pixels."""

ZOOM = 2
"""Pages are drawn this many times larger and reduced."""

MIN_DETAIL = 5.0
"""Mean difference of neighbouring grey levels below which a cut counts as blank."""


def rendered(face: Face, writer: Writer, side: int, em: int) -> tuple[Tile, list[str]]:
    """Ink coverage (side, side) of whole lines inside a margin, and the lines."""
    margin, step = em // 2, round(em * 1.35)
    font = face.at(em * ZOOM)
    image = Image.new("L", (side * ZOOM, side * ZOOM), 0)
    draw = ImageDraw.Draw(image)
    count = max(1, (side - 2 * margin + step - em) // step)
    room = (side - 2 * margin) * ZOOM
    lines = [x for x in wrap(writer.prose(600), font, room) if font.getlength(x) <= room][:count]
    for i, line in enumerate(lines):
        draw.text((margin * ZOOM, (margin + i * step) * ZOOM), line, fill=255, font=font)
    return np.asarray(image.resize((side, side), Image.Resampling.BOX)).copy(), lines


def one_face_a_package(unpacked: Path, split: Split = "evaluation") -> list[Face]:
    """The regular face of each package of a split, or its first."""
    chosen = {}
    for face in faces(unpacked, split):
        if face.package not in chosen or "regular" in face.path.name.lower():
            chosen[face.package] = face
    return list(chosen.values())


def page_pictures(corpus: Path, text: Path) -> Iterator[tuple[str, Tile, str, list[str]]]:
    """(name, picture, source, lines) of the rendered pages."""
    rng = random.Random(2026)
    writer = Writer([x for x in read_lines(text, "eval", PUBLIC_DOMAIN) if len(x) > 40], rng)
    dress = DocumentCrops([], [], 2026)
    for i, face in enumerate(one_face_a_package(corpus / "unpacked")[: len(SIDES)]):
        ink, lines = rendered(face, writer, SIDES[i], EMS[i])
        x = 1 - torch.from_numpy(ink).float()[None] / 255
        if i % 2:
            x = dress.photographed(torch.from_numpy(ink).float()[None] / 255)
        grey = (x.clamp(0, 1) * 255).round().byte().expand(3, -1, -1).permute(1, 2, 0).numpy()
        yield f"page-{face.package.removeprefix('fonts-')}", grey, f"font: {face.package}", lines


def scan_pictures(corpus: Path) -> Iterator[tuple[str, Tile, str]]:
    """(name, picture, source) of the scans, from pages far apart."""
    rng = random.Random(2027)
    pages = sources.SCAN_PAGES["evaluation"]
    for i, side in enumerate(SIDES):
        number = pages[i * len(pages) // len(SIDES)]
        image = scans.scan(corpus / "unpacked", number)
        size = tuple(round(n / SCAN_FACTORS[i]) for n in image.size)
        reduced = image.resize((size[0], size[1]), Image.Resampling.BOX)
        tile = _lively(reduced, rng, side)
        assert tile is not None, f"page {number} is blank"
        yield (
            f"scan-{number}",
            np.repeat(255 - tile[..., None], 3, 2),
            f"{sources.SCANS}, page {number}",
        )


def screen_pictures(corpus: Path) -> Iterator[tuple[str, Tile, str]]:
    """(name, picture, source) of the screens, from every withheld manual in turn."""
    rng = random.Random(2028)
    unpacked = corpus / "unpacked"
    files = {name: scans.pictures(unpacked, (name,), 256) for name in sources.SCREENS["evaluation"]}
    files = {name: [p for p in paths if "icon" not in str(p)] for name, paths in files.items()}
    names = list(files)
    for i, side in enumerate(SIDES):
        package = names[i % len(names)]
        tile = None
        while tile is None:
            path = rng.choice(files[package])
            files[package].remove(path)
            tile = _lively(scans.flat(path), rng, side)
        yield f"screen-{i}-{path.stem[:24]}", tile, f"{package}, {path.name}"


def _lively(image: Image.Image, rng: random.Random, side: int) -> Tile | None:
    """A cut with enough on it, if one is found."""
    for _ in range(50):
        tile = scans.cut(image, rng, side)
        grey = tile.astype(float).reshape(side, side, -1).mean(-1)
        if sum(abs(np.diff(grey, axis=axis)).mean() for axis in (0, 1)) / 2 > MIN_DETAIL:
            return tile
    return None


def build(corpus: Path, text: Path, out: Path) -> None:
    """Writes the pictures, ``texts.json`` and ``sources.json``."""
    out.mkdir(parents=True, exist_ok=True)
    texts, origin = {}, {}
    for name, picture, source, lines in page_pictures(corpus, text):
        Image.fromarray(picture).save(out / f"{name}.png", optimize=True)
        texts[name], origin[name] = lines, source
    for name, picture, source in [*scan_pictures(corpus), *screen_pictures(corpus)]:
        image = Image.fromarray(picture)
        grey = bool((picture == picture[..., :1]).all())
        (image.convert("L") if grey else image).save(out / f"{name}.png", optimize=True)
        origin[name] = source
    (out / "texts.json").write_text(json.dumps(texts, indent=1) + "\n")
    (out / "sources.json").write_text(json.dumps(origin, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--corpus", type=Path, required=True, help="folder of training.documents.fetch"
    )
    parser.add_argument("--text", type=Path, required=True, help="text.tar.xz")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    build(args.corpus, args.text, args.out)


if __name__ == "__main__":
    main()
