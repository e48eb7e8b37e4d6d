"""Ready-made pages as arrays: scans (DjVu), typeset pages (PDF), screens and music (PNG)."""

from __future__ import annotations

import hashlib
import io
import random
import subprocess
from pathlib import Path

import numpy as np
from PIL import Image

from training.documents import sources
from training.documents.pages import Tile
from training.documents.sources import Split


def scan(unpacked: Path, page: int) -> Image.Image:
    """One scanned page, 300 dpi, mode L, 255 = ink."""
    book = next((unpacked / sources.SCANS).rglob("*.djvu"))
    raw = _output(["ddjvu", "-format=pgm", f"-page={page}", str(book)])
    return Image.fromarray(255 - np.asarray(Image.open(io.BytesIO(raw)).convert("L")))


def scan_tile(unpacked: Path, split: Split, rng: random.Random, size: int) -> Tile:
    """A square of ink coverage from a scan reduced by 1.3 to 5, (size, size) uint8."""
    image = scan(unpacked, rng.choice(sources.SCAN_PAGES[split]))
    factor = 1.3 * (5 / 1.3) ** rng.random()
    factor = min(factor, min(image.size) / size)
    width, height = (round(n / factor) for n in image.size)
    reduced = image.resize(
        (width, height), Image.Resampling.BOX if rng.random() < 0.5 else Image.Resampling.BICUBIC
    )
    return cut(reduced, rng, size)


def typeset(unpacked: Path) -> list[Path]:
    """Every PDF of the typeset manuals."""
    return sorted(p for name in sources.TYPESET for p in (unpacked / name).rglob("*.pdf"))


def typeset_tile(files: list[Path], rng: random.Random, size: int) -> Tile | None:
    """A square of a random page at 60 to 250 dpi, (size, size, 3) uint8; None if it is blank."""
    file = rng.choice(files)
    dpi = round(60 * (250 / 60) ** rng.random())
    page = str(1 + int(30 * rng.random() ** 2))
    raw = subprocess.run(
        ["pdftoppm", "-r", str(dpi), "-f", page, "-l", page, "-singlefile", str(file)],
        capture_output=True, check=False,
    ).stdout  # fmt: skip
    if not raw:  # the file has fewer pages
        return None
    tile = cut(Image.open(io.BytesIO(raw)).convert("RGB"), rng, size)
    return tile if tile.std() > 12 else None


def pictures(unpacked: Path, names: tuple[str, ...], smallest: int) -> list[Path]:
    """PNG files with sides of ``smallest`` or more, each content once, English ones first."""
    seen: set[str] = set()
    found = []
    paths = [p for name in names for p in (unpacked / name).rglob("*.png")]
    for path in sorted(paths, key=lambda p: (not english(p), p)):
        with Image.open(path) as image:
            if min(image.size) < smallest:
                continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest not in seen:
            seen.add(digest)
            found.append(path)
    return found


def english(path: Path) -> bool:
    """Whether a manual's file belongs to its English edition."""
    return bool({"en", "C", "en-US"} & set(path.parts))


def flat(path: Path) -> Image.Image:
    """The picture on white, RGB."""
    image: Image.Image = Image.open(path)
    if image.mode in ("RGBA", "LA", "P", "PA"):
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def cut(image: Image.Image, rng: random.Random, size: int) -> Tile:
    """A random square of ``size``; a smaller picture is repeated."""
    array = np.asarray(image)
    missing = [max(0, size - n) for n in array.shape[:2]]
    if any(missing):
        pad = [(0, missing[0]), (0, missing[1]), (0, 0)][: array.ndim]
        array = np.pad(array, pad, mode="wrap")
    top, left = (rng.randrange(n - size + 1) for n in array.shape[:2])
    return array[top : top + size, left : left + size].copy()


def _output(command: list[str]) -> bytes:
    return subprocess.run(command, capture_output=True, check=True).stdout
