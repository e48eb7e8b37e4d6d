"""How close 'auto' comes to a movement: ``python -m research.diagnosis.movements``.

Photographs and documents in ``examples/`` are moved, and get noise or are compressed. The error of
the diagnosis is compared with that of 'auto', which measures a diagnosed movement more closely in
the picture's spectrum and edges (:mod:`aps_core.identify.blind.refine`). Cases whose family is
diagnosed wrongly are counted, but have no error. The search's reach was chosen on the pictures in
``CHOSEN_ON``, which are left out.
"""

from __future__ import annotations

import io
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from aps_core.identify.blind.families import FAMILIES, Parameters
from aps_core.identify.diagnosis import examine
from aps_core.identify.kinds.auto import Auto
from aps_core.identify.search import Search
from aps_core.imaging import images, noise
from aps_core.imaging.images import Picture
from research.common.arguments import parser_of
from research.common.pictures import EXAMPLES
from research.common.recording import recorded

SETS = ("photos", "documents")
MOVEMENTS: tuple[Parameters, ...] = ((5.0, 120.0), (7.0, 75.0), (13.0, 20.0), (17.0, 150.0))
FAMILY = FAMILIES["motion"]
CONDITIONS = {"noise 0": 0, "noise 0.02": 0.02, "noise 0.05": 0.05, "JPEG 85": 85, "JPEG 60": 60}
CHOSEN_ON = {
    *("castle", "chelsea", "coffee", "raccoon", "tajmahal", "bywater"),
    *("page-karla", "page-play", "page-oldstandard", "scan-1300", "scan-1600", "screen-2-kde"),
}


def degraded(path: Path, true: Parameters, condition: str) -> Picture:
    """A moved example, with noise or as a JPEG of a quality."""
    x_CHW = images.to_tensor(images.open_image(path.read_bytes()))
    y_CHW = FAMILY.blur(true).bind((3, *x_CHW.shape[1:]))(x_CHW[None])[0]
    strength = CONDITIONS[condition]
    if condition.startswith("noise"):
        noisy_CHW = noise.add_noise(y_CHW, strength, torch.Generator().manual_seed(0))
        return Picture(images.to_pil(noisy_CHW))
    buffer = io.BytesIO()
    images.to_pil(y_CHW).save(buffer, "JPEG", quality=int(strength))
    return Picture(Image.open(buffer).convert("RGB"))


def rows(seconds: float) -> Iterator[dict[str, Any]]:
    """One row for every case, in a random order, until ``seconds`` have passed."""
    torch.set_num_threads(1)
    found = (path for folder in SETS for path in sorted((EXAMPLES / folder).glob("*.png")))
    paths = [path for path in found if path.stem not in CHOSEN_ON]
    cases = [(path, true, each) for path in paths for true in MOVEMENTS for each in CONDITIONS]
    random.Random(0).shuffle(cases)
    start = time.monotonic()
    for path, true, condition in cases:
        if time.monotonic() - start > seconds:
            return
        upload = degraded(path, true, condition)
        values = examine(upload).blur
        began = time.monotonic()
        before, after = "", ""
        if values.get("family") == "motion":
            search = Auto().find(Search(upload))
            stages = getattr(search.operator, "stages", [search.operator])
            used = next(stage for stage in stages if stage.type == FAMILY.operator)
            guess = tuple(values[name] for name in FAMILY.names)
            before = f"{FAMILY.distance(guess, true):.4f}"
            final = tuple(getattr(used, name) for name in FAMILY.names)
            after = f"{FAMILY.distance(final, true):.4f}"
        yield {
            "set": path.parent.name,
            "picture": path.stem,
            "true": "/".join(map(str, true)),
            "condition": condition,
            "before": before,
            "after": after,
            "seconds": f"{time.monotonic() - began:.2f}",
        }


def table(found: Sequence[dict[str, Any]]) -> str:
    """Medians, means and largest errors as Markdown."""
    lines = [
        "| set | condition | cases | diagnosis: median, mean | `auto`: median, mean"
        " | largest: diagnosis, `auto` |",
        "|---|---|---|---|---|---|",
    ]
    kinds = {"noise": "noise 0 to 0.05", "JPEG": "JPEG 60, 85"}
    for group, (condition, label) in product(("photos", "documents"), kinds.items()):
        chosen = [
            (float(row["before"]), float(row["after"]))
            for row in found
            if row["set"] == group and row["condition"].startswith(condition) and row["before"]
        ]
        if chosen:
            before, after = zip(*chosen, strict=True)
            cells = [
                f"{statistics.median(each):.1%}, {statistics.fmean(each):.1%}"
                for each in (before, after)
            ]
            most = f"{max(before):.0%}, {max(after):.0%}"
            lines.append(f"| {' | '.join((group, label, str(len(chosen)), *cells, most))} |")
    return "\n".join(lines)


def main() -> None:
    """Measures, writes the rows as CSV and prints the table."""
    parser = parser_of(__doc__)
    parser.add_argument("-o", "--out", type=Path, default=Path("auto-blur.csv"))
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this long")
    options = parser.parse_args()
    print(table(recorded(rows(options.seconds), options.out)))


if __name__ == "__main__":
    main()
