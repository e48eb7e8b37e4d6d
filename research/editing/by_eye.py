"""Twenty edits and twenty stylized pictures by the embedded prior, to be judged by eye.

    python -m research.editing.by_eye http://127.0.0.1:8000 FOLDER [--preset fast] [--limit 20]

Submits every job to a running service as the studio does: a photograph of 96 pixels with a painted
mask or added margins and a prompt; or a style picture with a prompt, and for most a content
picture. Results go to FOLDER, and those that it has are not computed again. At the end,
``docs/edit-pairs.webp`` and ``docs/stylize-pairs.webp`` show all of them. What works is written in
``docs/editing.md`` by hand: look at the sheets and revise it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from aps_client import Client
from research.common.arguments import parser_of
from research.common.pictures import EXAMPLES

ROOT = Path(__file__).parents[2]
SIDE, GAP, LINE = 96, 6, 16
"""Pixels: side of a picture, space between pictures, height of a line of text."""
COLUMNS = 4
ADDED = 24
"""Pixels by which a photograph is extended."""


@dataclass(frozen=True)
class Edit:
    """What is regenerated: a box in hundredths of the picture, or ``ADDED`` pixels on a side."""

    photo: str
    prompt: str
    box: tuple[int, int, int, int] | None = None
    """Left, top, right, bottom."""
    side: str = ""


@dataclass(frozen=True)
class Style:
    """A style photograph and a prompt, and a photograph with the layout unless it is empty."""

    photo: str
    prompt: str
    content: str = ""


EDITS = (
    Edit("kleiber", "a tree trunk before a snowy meadow", (18, 34, 46, 70)),
    Edit("ladybird", "a green stem with leaves", (76, 36, 100, 70)),
    Edit("chelsea", "a cat with green eyes", (2, 24, 30, 50)),
    Edit("bywater", "a wooden pier by a lake", (30, 50, 70, 80)),
    Edit("flower", "an orange dahlia on a dark background", (0, 0, 34, 24)),
    Edit("flower", "an orange dahlia", (35, 40, 62, 66)),
    Edit("rocket", "a rocket under a full moon", (8, 4, 50, 28)),
    Edit("rocket", "a rocket at dusk", (76, 10, 100, 96)),
    Edit("castle", "a castle under a blue sky", (28, 4, 78, 30)),
    Edit("tajmahal", "a white marble building behind a lawn", (36, 78, 68, 100)),
    Edit("tajmahal", "a white marble building under clouds", (0, 30, 14, 78)),
    Edit("coffee", "a red cup of coffee on a saucer", (44, 48, 70, 86)),
    Edit("coffee", "a cup of green tea", (20, 22, 60, 48)),
    Edit("hedgehog", "a hedgehog in the grass", (0, 78, 100, 100)),
    Edit("honeybee", "a purple flower", (4, 22, 44, 86)),
    Edit("astronaut", "an astronaut in an orange suit", (58, 70, 100, 100)),
    Edit("friends", "a white wooden house", (44, 64, 74, 100)),
    Edit("bywater", "a wooden pier by a lake", side="bottom"),
    Edit("rocket", "a rocket at dusk", side="left"),
    Edit("garden", "a red and yellow flower", side="right"),
)
STYLES = (
    Style("honeybee", "a castle with towers", "castle"),
    Style("coffee", "a chinese pagoda by the water", "china"),
    Style("flower", "a rocket on a launch pad", "rocket"),
    Style("raccoon", "a motorcycle in a garage", "motorcycle"),
    Style("rocket", "a white marble building", "tajmahal"),
    Style("chelsea", "a cup of coffee on a saucer", "coffee"),
    Style("garden", "an astronaut in an orange suit", "astronaut"),
    Style("bywater", "an orange dahlia flower", "flower"),
    Style("bywater", "a white marble building", "tajmahal"),
    Style("castle", "a hedgehog in the grass", "hedgehog"),
    Style("rocket", "two dogs at a window", "friends"),
    Style("hedgehog", "a castle with towers", "castle"),
    Style("ladybird", "a cat with green eyes", "chelsea"),
    Style("flower", "a wooden pier by a lake", "bywater"),
    Style("coffee", "a raccoon among leaves", "raccoon"),
    Style("bywater", "a sunset over the sea"),
    Style("flower", "a red flower"),
    Style("hedgehog", "grass"),
    Style("castle", "a house under a blue sky"),
    Style("honeybee", "a purple flower"),
)


def photo(name: str) -> Image.Image:
    """An example photograph of ``SIDE`` pixels."""
    with Image.open(EXAMPLES / "photos" / f"{name}.png") as file:
        return file.convert("RGB").resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def png(image: Image.Image) -> bytes:
    """The picture as a file."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def mask_of(asked: Edit) -> Image.Image | None:
    """White where the photograph is kept; None if it is extended instead."""
    if asked.box is None:
        return None
    mask = Image.new("L", (SIDE, SIDE), 255)
    left, top, right, bottom = (round(SIDE * share / 100) for share in asked.box)
    mask.paste(0, (left, top, right, bottom))
    return mask


def edited(client: Client, asked: Edit, preset: str) -> bytes:
    """The file of an edit's result."""
    mask = mask_of(asked)
    added = {asked.side: ADDED} if asked.side else {}
    painted = png(mask) if mask else None
    made = client.edit(png(photo(asked.photo)), asked.prompt, mask=painted, preset=preset, **added)
    return made.image


def stylized(client: Client, asked: Style, preset: str) -> bytes:
    """The file of a stylized picture."""
    content = png(photo(asked.content)) if asked.content else None
    made = client.stylize(
        png(photo(asked.photo)),
        asked.prompt,
        image=content,
        preset=preset,
        **({} if content else {"width": SIDE, "height": SIDE}),
    )
    return made.image


def before(asked: Edit) -> Image.Image:
    """The photograph with what is regenerated in red, at the size of the result."""
    wide = ADDED if asked.side in ("left", "right") else 0
    high = ADDED if asked.side in ("top", "bottom") else 0
    shown = Image.new("RGB", (SIDE + wide, SIDE + high), "#c0392b")
    mask = mask_of(asked)
    shown.paste(
        photo(asked.photo),
        (wide if asked.side == "left" else 0, high if asked.side == "top" else 0),
        mask,
    )
    return shown


def sheet(cells: Sequence[tuple[str, list[Image.Image]]], path: Path) -> None:
    """Writes a sheet of numbered cells: pictures side by side, and one line of text."""
    most = max(len(pictures) for _, pictures in cells)
    width, height = most * (SIDE + GAP) + 2 * GAP, SIDE + LINE + 2 * GAP
    rows = -(-len(cells) // COLUMNS)
    drawn = Image.new("RGB", (COLUMNS * width, rows * height), "white")
    pen, font = ImageDraw.Draw(drawn), ImageFont.load_default(11)
    for number, (words, pictures) in enumerate(cells):
        left, top = number % COLUMNS * width + GAP, number // COLUMNS * height
        for place, picture in enumerate(pictures):
            small = picture.copy()
            small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
            drawn.paste(small, (left + place * (SIDE + GAP), top))
        told = f"{number + 1}. {words}"
        while pen.textlength(told, font) > width - 2 * GAP:
            told = f"{told.rstrip('…')[:-1]}…"
        pen.text((left, top + SIDE + 1), told, fill="#1b1a17", font=font)
    drawn.save(path, quality=88, method=6)


def results(made: Sequence[tuple[str, Callable[[], bytes]]], folder: Path) -> Iterator[Image.Image]:
    """The result of every job by name, from the folder if it is there."""
    for name, compute in made:
        path = folder / f"{name}.png"
        if not path.exists():
            path.write_bytes(compute())
            print(path, flush=True)
        with Image.open(path) as image:
            yield image.convert("RGB")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("server")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--preset", default="balanced")
    parser.add_argument("--limit", type=int, default=20, help="only the first LIMIT of each task")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    preset = asked.preset
    with Client(asked.server) as client:
        edits = [
            (f"edit-{n}-{preset}", partial(edited, client, e, preset))
            for n, e in enumerate(EDITS[: asked.limit], 1)
        ]
        styles = [
            (f"stylize-{n}-{preset}", partial(stylized, client, s, preset))
            for n, s in enumerate(STYLES[: asked.limit], 1)
        ]
        afters = list(results((*edits, *styles), asked.folder))
    sheet(
        [
            (e.prompt, [before(e), after])
            for e, after in zip(EDITS, afters[: len(edits)], strict=False)
        ],
        ROOT / "docs" / "edit-pairs.webp",
    )
    sheet(
        [
            (s.prompt, [photo(s.photo), *([photo(s.content)] if s.content else []), after])
            for s, after in zip(STYLES, afters[len(edits) :], strict=False)
        ],
        ROOT / "docs" / "stylize-pairs.webp",
    )


if __name__ == "__main__":
    main()
