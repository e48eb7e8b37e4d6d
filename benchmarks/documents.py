"""What the documents prior gives on pages, scans and screens, beside the one for any picture.

    python -m benchmarks.documents examples/documents

Restores the middle 128 pixels of every picture of a folder with the default sampler of the
documents prior and of ``embedded``, and again with equal logits in the place of the documents
prior, which believe any estimate: in the same rounds, and in a single one with as many corrections.
``--controls`` adds the paper's anchors (of the most confident, of random, and of the tokens that
the prior alone is most confident of) in the place of rounds, and the prior alone. Measurement and
seed are the same for all. Rows are appended to a CSV file, and an interrupted run continues.
Printed by task: mean PSNR of the baselines and of every method, and what the documents prior gains
over the others, with its 95 % interval, paired over pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.baselines import (
    TV_WEIGHTS_DOCUMENTS,
    shrinkage,
    simple,
    total_variation,
    wiener,
)
from aps_core.evaluation.cases import Case
from aps_core.evaluation.photographs import Photographs
from aps_core.evaluation.rows import Row
from aps_core.evaluation.run import Variant
from aps_core.evaluation.tables import markdown, mean, paired_interval
from aps_core.runtime.process import be_reproducible
from benchmarks.prior_share import EqualLogits
from benchmarks.variants import arguments, run_variants

SIDE = 128
TASKS = ("sr4", "gaussian_blur", "motion_blur")
MORE_TASKS = ("sr2", "jpeg", "inpainting50")
BASELINES: dict[str, Callable[[Case], Tensor]] = {
    "input": simple,
    "tv": partial(total_variation, weights=TV_WEIGHTS_DOCUMENTS),
    "shrinkage": partial(shrinkage, clipped_smoothness=0.0),
    "wiener": wiener,
}
DEFAULT = Variant(method="plug_and_play")
EQUAL, SINGLE = CONTROLS = ("equal logits", "single optimisation")
CONTROL_WEIGHTS = {"embedded_documents": (0.4, 0.4), "embedded_photographs": (6.4, 6.4)}
"""Of equal logits by the prior that they replace, in the default's rounds and in a single one.
Chosen on withheld pictures, as the default's was: estimates are believed less if no prior judges
them.
"""
ANCHORS = {"anchors": "posterior", "random anchors": "random", "prior's anchors": "prior"}
"""Orders of :mod:`aps_core.samplers.carried_evidence`."""


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


def summary(rows: list[Row], default: str) -> str:
    """One line per task: means, and what the method ``default`` gains over the others."""
    found = {(row.task, row.image, row.method): row.psnr for row in rows}
    methods = list(dict.fromkeys(row.method for row in rows))
    others = [name for name in methods if name != default]
    lines = []
    for task in dict.fromkeys(row.task for row in rows):
        images = sorted(
            {row.image for row in rows if (row.task, row.method) == (task, methods[-1])}
        )
        cells = [task, *(f"{mean(found[task, x, m] for x in images):.2f}" for m in methods)]
        for other in others:
            gain, low, high = paired_interval(
                [found[task, x, default] - found[task, x, other] for x in images]
            )
            cells.append(f"{gain:+.2f} [{low:.2f}, {high:.2f}]")
        lines.append(cells)
    return markdown(["task", *methods, *(f"gain over {name}" for name in others)], lines)


def without_prior(engine: ImageEngine) -> dict[str, tuple[ImageEngine, Variant]]:
    """The default with equal logits in the prior's place, in its rounds, and in a single one with
    as many corrections.
    """
    blank = ImageEngine(engine.spec, EqualLogits(engine.prior), engine.device)
    usual = engine.spec.tuned[DEFAULT.method]
    corrections = usual["steps"] * usual["inner_steps"]
    rounds_weight, single_weight = CONTROL_WEIGHTS[engine.spec.type]
    single = {"steps": 1, "inner_steps": corrections, "prior_weight": single_weight}
    return {
        EQUAL: (blank, Variant(DEFAULT.method, settings={"prior_weight": rounds_weight})),
        SINGLE: (blank, Variant(DEFAULT.method, settings=single)),
    }


def anchored(engine: ImageEngine) -> dict[str, tuple[ImageEngine, Variant]]:
    """Samplers with anchors, in three orders, and the prior alone."""
    return {
        **{
            name: (engine, Variant("carried_evidence", settings={"remasking": order}))
            for name, order in ANCHORS.items()
        },
        "prior alone": (engine, Variant("prior_only")),
    }


def main() -> None:
    parser = arguments(__doc__, "documents.csv")
    parser.add_argument("--every", type=int, default=1, help="use every Nth picture")
    parser.add_argument("--task", choices=[*TASKS, *MORE_TASKS], action="append")
    parser.add_argument("--controls", action="store_true")
    asked = parser.parse_args()
    be_reproducible(asked.threads)
    documents = ImageEngine.load("embedded_documents")
    general = ImageEngine.load("embedded")
    variants = {
        "embedded": (general, Variant(general.spec.restoring_sampler)),
        "documents": (documents, DEFAULT),
        **without_prior(documents),
    }
    if asked.controls:
        variants |= anchored(documents)
    pictures = middles(asked.photographs, asked.every)
    tasks = tuple(asked.task or TASKS)
    rows = run_variants(variants, pictures, asked.out, tasks, BASELINES)
    print(summary([row for row in rows if row.task in tasks], "documents"))


if __name__ == "__main__":
    main()
