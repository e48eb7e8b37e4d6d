"""Renders the tiles that the documents' training draws its crops from.

    python -m training.documents.build --corpus CORPUS --text text.tar.xz --pictures DIR --shards 4

Writes ``CORPUS/tiles/ink-NNN.npy`` (N, 512, 512), ink coverage, coloured and lit at training time,
and ``colour-NNN.npy`` (N, 512, 512, 3), uint8. A shard that exists is kept, so more can be added
while a run is going; a restarted run sees them. ``validation-*.npy`` hold pages, scans and screens
of the validation split.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from training.corpus import Picture, load, square
from training.documents import scans, sources
from training.documents.fonts import faces
from training.documents.pages import PageMaker, Tile
from training.documents.panels import PanelMaker
from training.documents.sources import Split
from training.documents.words import read_lines

SIZE = 512
INK_TILES, COLOUR_TILES = 512, 256
"""Tiles a shard."""

SCAN_SHARE = 0.25
"""Share of ink tiles that are real scans."""

Maker = Callable[[], Tile | None]


def page_maker(corpus: Path, text: Path, split: Split, seed: int) -> Maker:
    """Pages of text in the split's fonts."""
    return PageMaker(faces(corpus / "unpacked", split), read_lines(text), SIZE, seed).page


def scan_maker(corpus: Path, split: Split, seed: int) -> Maker:
    """Pieces of the split's scans."""
    rng = random.Random(seed)
    return lambda: scans.scan_tile(corpus / "unpacked", split, rng, SIZE)


def picture_maker(files: list[Path], rng: random.Random) -> Maker:
    """Pieces of pictures."""
    return lambda: scans.cut(scans.flat(rng.choice(files)), rng, SIZE)


def screen_maker(corpus: Path, split: Split, seed: int) -> Maker:
    """Pieces of the split's screens."""
    files = scans.pictures(corpus / "unpacked", sources.SCREENS[split], 120)
    return picture_maker(files, random.Random(seed))


def colour_makers(
    corpus: Path, text: Path, pictures: Sequence[Picture], seed: int
) -> list[tuple[Maker, float]]:
    """Sources of training's colour tiles with their shares."""
    unpacked, rng = corpus / "unpacked", random.Random(seed)
    panels = PanelMaker(faces(unpacked, "train"), read_lines(text), SIZE, seed)
    typeset = scans.typeset(unpacked)
    music = scans.pictures(unpacked, sources.MUSIC, 100)
    makers: list[tuple[Maker, float]] = [
        (panels.panel, 0.3),
        (screen_maker(corpus, "train", seed), 0.35),
        (lambda: scans.typeset_tile(typeset, rng, SIZE), 0.2),
        (picture_maker(music, rng), 0.05),
    ]
    icons = [picture for picture in pictures if picture.group == "icon"]
    photographs = [picture for picture in pictures if picture.group == "photo"]
    if icons:
        makers.append((Sheets(icons, 128, rng).sheet, 0.1))
    if photographs:
        makers.append((Sheets(photographs, 256, rng).sheet, 0.1))
    return makers


class Sheets:
    """Sheets of square pictures side by side."""

    def __init__(self, pictures: list[Picture], side: int, rng: random.Random) -> None:
        self.pictures = pictures
        self.side = side
        self.rng = rng

    def sheet(self) -> Tile:
        """(512, 512, 3) uint8."""
        sheet = np.empty((SIZE, SIZE, 3), np.uint8)
        for y in range(0, SIZE, self.side):
            for x in range(0, SIZE, self.side):
                x_3SS = square(self.rng.choice(self.pictures), self.side)
                pixels_3SS = ((x_3SS + 1) * 127.5).round().byte()
                sheet[y : y + self.side, x : x + self.side] = pixels_3SS.permute(1, 2, 0)
        return sheet


def write(makers: list[tuple[Maker, float]], count: int, target: Path, seed: int) -> None:
    """Draws ``count`` tiles and saves them; blank ones are drawn anew."""
    rng = random.Random(seed)
    tiles: list[Tile] = []
    with tqdm(total=count, desc=target.name, mininterval=5) as bar:
        while len(tiles) < count:
            maker = rng.choices([m for m, _ in makers], [share for _, share in makers])[0]
            tile = maker()
            if tile is not None and tile.std() > 4:
                tiles.append(tile)
                bar.update()
    temporary = target.with_suffix(".tmp")
    with temporary.open("wb") as file:
        np.save(file, np.stack(tiles))
    temporary.replace(target)


def build(corpus: Path, text: Path, pictures: Sequence[Picture], shards: int) -> None:
    """Writes every tile file that is missing."""
    tiles = corpus / "tiles"
    tiles.mkdir(exist_ok=True)
    plan: list[tuple[str, int, Callable[[int], list[tuple[Maker, float]]]]] = [
        ("validation-ink", 64, lambda n: [(page_maker(corpus, text, "validation", n), 1)]),
        ("validation-scan", 32, lambda n: [(scan_maker(corpus, "validation", n), 1)]),
        ("validation-colour", 32, lambda n: [(screen_maker(corpus, "validation", n), 1)]),
    ]

    def ink(n: int) -> list[tuple[Maker, float]]:
        pages = page_maker(corpus, text, "train", n)
        return [(pages, 1 - SCAN_SHARE), (scan_maker(corpus, "train", n), SCAN_SHARE)]

    for i in range(shards):
        plan.append((f"ink-{i:03d}", INK_TILES, ink))
        plan.append(
            (f"colour-{i:03d}", COLOUR_TILES, lambda n: colour_makers(corpus, text, pictures, n))
        )
    for seed, (name, count, makers) in enumerate(plan):
        if not (tiles / f"{name}.npy").exists():
            write(makers(seed), count, tiles / f"{name}.npy", seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--corpus", type=Path, required=True, help="folder of training.documents.fetch"
    )
    parser.add_argument("--text", type=Path, required=True, help="text.tar.xz")
    parser.add_argument(
        "--pictures", type=Path, help="folder with photos_train.zip and icons_train.zip"
    )
    parser.add_argument("--shards", type=int, default=4)
    args = parser.parse_args()
    pictures = load(args.pictures)[0] if args.pictures else []
    build(args.corpus, args.text, pictures, args.shards)


if __name__ == "__main__":
    main()
