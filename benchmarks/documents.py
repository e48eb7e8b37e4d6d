"""What the documents prior gives on pages, scans and screens, beside the photographs prior.

    python -m benchmarks.documents examples/documents

Restores the middle 128 pixels of every picture of a folder with the default sampler of both
embedded priors, and again with equal logits in the place of the documents prior, which leaves its
tokenizer. Measurement and seed are the same for all. Rows are appended to a CSV file, and an
interrupted run continues. Printed by task: mean PSNR of the baselines and of every method, and what
the documents prior gains over the others, with its 95 % interval, paired over pictures.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from aps_core.evaluation.photographs import Photographs
from aps_core.evaluation.rows import Row
from aps_core.evaluation.run import Variant
from aps_core.evaluation.tables import markdown, mean, paired_interval
from aps_core.runtime.engine import ImageEngine
from aps_core.runtime.process import be_reproducible
from benchmarks.prior_share import EqualLogits
from benchmarks.variants import arguments, run_variants

SIDE = 128
TASKS = ("sr4", "gaussian_blur", "motion_blur")
BASELINES = ("input", "tv")
DEFAULT = Variant(method="carried_evidence")


def middles(folder: Path, every: int) -> Photographs:
    """Middle squares (3, 128, 128) in [-1, 1] of every Nth picture, at the pictures' own scale."""
    found = []
    for path in sorted(folder.glob("*.png"))[::every]:
        with Image.open(path) as file:
            left, top = (file.width - SIDE) // 2, (file.height - SIDE) // 2
            cut = file.convert("RGB").crop((left, top, left + SIDE, top + SIDE))
        x_CHW = torch.from_numpy(np.asarray(cut).copy()).permute(2, 0, 1) / 127.5 - 1
        found.append((path.stem, x_CHW))
    return found


def summary(rows: list[Row]) -> str:
    """One line per task."""
    found = {(row.task, row.image, row.method): row for row in rows}
    methods = list(dict.fromkeys(row.method for row in rows))
    others = [name for name in methods if name != "documents"]
    lines = []
    for task in TASKS:
        images = sorted(
            {row.image for row in rows if (row.task, row.method) == (task, methods[-1])}
        )
        cells = [task, *(f"{mean(found[task, x, m].psnr for x in images):.2f}" for m in methods)]
        for other in others:
            gain, low, high = paired_interval(
                [found[task, x, "documents"].psnr - found[task, x, other].psnr for x in images]
            )
            cells.append(f"{gain:+.2f} [{low:.2f}, {high:.2f}]")
        lines.append(cells)
    return markdown(["task", *methods, *(f"gain over {name}" for name in others)], lines)


def main() -> None:
    parser = arguments(__doc__, "documents.csv")
    parser.add_argument("--every", type=int, default=1, help="use every Nth picture")
    asked = parser.parse_args()
    be_reproducible(asked.threads)
    documents = ImageEngine.load("embedded_documents")
    blank = ImageEngine(documents.spec, EqualLogits(documents.prior.tokenizer), documents.device)
    variants = {
        "photographs": (ImageEngine.load("embedded"), DEFAULT),
        "documents": (documents, DEFAULT),
        "equal logits": (blank, DEFAULT),
    }
    pictures = middles(asked.photographs, asked.every)
    print(summary(run_variants(variants, pictures, asked.out, TASKS, BASELINES)))


if __name__ == "__main__":
    main()
