"""Style distance of stylized pictures, compared with unguided ones from the same seed.

    python -m research.editing.stylize_pairs

Writes a table and a contact sheet. Every pair consists of a style photograph and a content
photograph, which the prompt describes. Three pictures are compared: the prior alone
(``driver.sample``), guided by the style, and guided by style and content. The distance of the
unmodified content photograph is a control, because unguided pictures of the embedded prior have
little content and are easy to improve on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw

from aps_core.engines.engine import ImageEngine
from aps_core.imaging import images
from aps_core.runtime.process import be_reproducible
from aps_core.samplers.prior import PriorConfig
from aps_core.sampling import driver
from aps_core.tasks import Inputs, PictureResult, StylizeSpec, run
from research.common.arguments import parser_of
from research.common.pictures import EXAMPLES
from research.common.recording import recorded

ROOT = Path(__file__).parents[2]
PAIRS = (
    ("honeybee", "castle", "a castle with towers"),
    ("coffee", "china", "a chinese pagoda by the water"),
    ("flower", "rocket", "a rocket on a launch pad"),
    ("raccoon", "motorcycle", "a motorcycle in a garage"),
    ("rocket", "tajmahal", "a white marble building"),
    ("chelsea", "coffee", "a cup of coffee on a saucer"),
    ("garden", "astronaut", "an astronaut in an orange suit"),
    ("bywater", "flower", "an orange dahlia flower"),
)
"""(style photograph, content photograph, prompt)."""
COLUMNS = ("style", "content", "unguided", "stylized", "stylized, with content")
CELL = 160


def photo(name: str, side: int) -> images.Picture:
    """Opens an example photograph, cropped to a square."""
    picture = images.open_image((EXAMPLES / "photos" / f"{name}.png").read_bytes())
    return images.Picture(
        picture.image.convert("RGB").resize((side, side), Image.Resampling.LANCZOS)
    )


def measure(
    engine: ImageEngine, style: str, content: str, prompt: str, sampler: dict[str, Any], seed: int
) -> tuple[dict[str, Any], list[Image.Image]]:
    """Measures one pair; returns its rows of the table and of the contact sheet."""
    side = engine.spec.native_size[0]
    alone, both = (
        Inputs(style=photo(style, 256)),
        Inputs(image=photo(content, side), style=photo(style, 256)),
    )
    spec = StylizeSpec(prompt=prompt, seed=seed, sampler=sampler)
    distance = spec.objective(alone, engine, side, side)
    unguided = driver.sample(
        engine.prior,
        distance,
        PriorConfig().with_recommended(engine.spec.recommended_for(PriorConfig)),
        grid=engine.grid(side, side),
        generator=torch.Generator(engine.device).manual_seed(seed),
        condition=prompt,
    )
    guided, kept = run(spec, alone, engine), run(spec, both, engine)
    assert isinstance(guided, PictureResult)
    assert isinstance(kept, PictureResult)
    with torch.no_grad():
        content_distance = float(
            distance(images.to_tensor(both.picture())[None].to(engine.device))[1]
        )
    before, after, after_content = float(unguided.misfit_B), guided.misfit_B[0], kept.misfit_B[0]
    row = {
        "style": style,
        "content": content,
        "prompt": prompt,
        "seed": seed,
        "unguided": round(before, 4),
        "content_photo": round(content_distance, 4),
        "stylized": round(after, 4),
        "stylized_with_content": round(after_content, 4),
        "fall_percent": round(100 * (1 - after / before), 1),
        "fall_with_content_percent": round(100 * (1 - after_content / before), 1),
        "fall_from_content_photo_percent": round(100 * (1 - after_content / content_distance), 1),
    }
    drawn = (
        images.to_pil(x_BCHW[0])
        for x_BCHW in (unguided.x_BCHW, guided.pictures_BCHW, kept.pictures_BCHW)
    )
    return row, [photo(style, 256).image, photo(content, side).image, *drawn]


def sheet(rows: list[tuple[dict[str, Any], list[Image.Image]]], path: Path) -> None:
    """Draws the contact sheet: one row per pair, distances below the pictures."""
    picture = Image.new("RGB", (len(COLUMNS) * (CELL + 4), 20 + len(rows) * (CELL + 34)), "white")
    draw = ImageDraw.Draw(picture)
    for i, column in enumerate(COLUMNS):
        draw.text((i * (CELL + 4) + 4, 4), column, fill="black")
    for j, (row, cells) in enumerate(rows):
        top = 20 + j * (CELL + 34)
        for i, cell in enumerate(cells):
            picture.paste(
                cell.resize((CELL, CELL), Image.Resampling.LANCZOS), (i * (CELL + 4), top)
            )
        told = (
            "",
            row["content_photo"],
            row["unguided"],
            row["stylized"],
            row["stylized_with_content"],
        )
        for i, value in enumerate(told):
            draw.text(
                (i * (CELL + 4) + 4, top + CELL + 1),
                f"distance {value:.3f}" if value else "",
                fill="black",
            )
        draw.text((4, top + CELL + 14), row["prompt"], fill="gray")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, quality=88, optimize=True)


def main() -> None:
    """Measures all pairs; takes about 15 seconds per pair on one CPU thread."""
    parser = parser_of(__doc__)
    parser.add_argument("--prior", default="embedded")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--inner-steps", type=int, default=8)
    parser.add_argument("--csv", type=Path, default=Path(__file__).with_name("stylize-pairs.csv"))
    parser.add_argument("--sheet", type=Path, default=ROOT / "docs" / "stylize.jpg")
    options = parser.parse_args()
    be_reproducible(1)
    engine = ImageEngine.load(options.prior, options.device)
    rows = []
    for seed, pair in enumerate(PAIRS):
        rows.append(
            measure(
                engine, *pair, {"steps": options.steps, "inner_steps": options.inner_steps}, seed
            )
        )
        print(rows[-1][0], flush=True)
    recorded((row for row, _ in rows), options.csv)
    sheet(rows, options.sheet)


if __name__ == "__main__":
    main()
