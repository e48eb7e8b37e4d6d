"""How much of a moved picture its diagnosis needs to see.

    python -m research.diagnosis.parts

Moves the photographs and pages of ``examples`` that are large enough, adds noise, and counts for
the whole picture and for its middle in how many the length is found within 25 %, and the direction
within 15 degrees.
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from aps_core.evaluation.tables import markdown
from aps_core.identify.diagnosis import diagnose
from research.common.arguments import parser_of
from research.common.pictures import EXAMPLES
from training.diagnosis.simulate import Truth, degraded, to_image

LEAST_SIDE, NOISE = 224, 0.02
MOVEMENTS = ((13.0, 20.0), (7.0, 75.0))
"""Length in pixels, direction in degrees."""
SIDES = (None, 128, 96, 64)
"""Of the part that is diagnosed; None is all."""
LENGTH_SHARE, DEGREES = 0.25, 15.0


def found(image: Image.Image, length: float, angle: float) -> bool:
    """Whether the diagnosis of a picture knows its movement."""
    file = io.BytesIO()
    image.save(file, "PNG")
    blur = diagnose(file.getvalue()).blur
    if blur.get("family") != "motion":
        return False
    off = abs(blur["angle"] - angle) % 180
    near = abs(blur["length"] / length - 1) <= LENGTH_SHARE
    return bool(near and min(off, 180 - off) <= DEGREES)


def middle(image: Image.Image, side: int | None) -> Image.Image:
    """The middle square of a picture, or all of it."""
    if side is None:
        return image
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))


def main() -> None:
    parser_of(__doc__).parse_args()
    counts, cases = dict.fromkeys(SIDES, 0), 0
    for path in sorted(EXAMPLES.glob("photos/*.png")) + sorted(EXAMPLES.glob("documents/*.png")):
        picture = Image.open(path).convert("RGB")
        if min(picture.size) < LEAST_SIDE:
            continue
        x = np.asarray(picture, dtype=np.float64) / 127.5 - 1
        for length, angle in MOVEMENTS:
            truth = Truth(
                family="motion", size=length, angle=angle, noise=NOISE, quality=0, document=False
            )
            moved = to_image(degraded(x, truth, np.random.default_rng(0)))
            cases += 1
            for side in SIDES:
                counts[side] += found(middle(moved, side), length, angle)
    print(
        markdown(
            ["part", f"found of {cases}"],
            [[f"{side} pixels" if side else "whole", str(n)] for side, n in counts.items()],
        )
    )


if __name__ == "__main__":
    main()
