r"""Chooses the weight of the total-variation baseline for each task on withheld pictures.

    python -m benchmarks.tune_tv --photographs CORPUS
    python -m benchmarks.tune_tv --documents CORPUS

Runs every weight on the same withheld pictures of 128 pixels: training's validation photographs, or
its validation pages, scans and screens (``training/README.md``). None of them is in a reported
table. Prints the mean PSNR of every weight and the best one by task, which
``aps_core/evaluation/baselines.py`` records.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torch import Tensor

from aps_core.evaluation.baselines import total_variation
from aps_core.evaluation.cases import Case, Setup, make_case
from aps_core.evaluation.metrics import psnr
from aps_core.evaluation.tables import markdown, mean
from aps_core.runtime.engine import ImageEngine
from aps_core.runtime.process import be_reproducible
from training import corpus
from training.documents.tokenizer import held_out

TASKS = {
    "sr2": 0.05,
    "sr4": 0.05,
    "gaussian_blur": 0.05,
    "motion_blur": 0.05,
    "inpainting50": 0.05,
    "inpainting70": 0.05,
    "jpeg": 0.05,
    "denoise": 0.2,
}
"""Noise by task."""
WEIGHTS = (1.0, 2.0, 4.0, 8.0, 16.0)


def pictures(photographs: Path | None, documents: Path | None, count: int) -> list[Tensor]:
    """(3, 128, 128) in [-1, 1]; of documents, the kinds in turn."""
    if photographs is not None:
        found = corpus.load(photographs, icons=False)[1]
        return [corpus.square(picture, 128) for picture in found[:count]]
    assert documents is not None
    kinds = list(held_out(documents).values())
    return [kinds[i % len(kinds)][i // len(kinds)] for i in range(count)]


def restored(case: Case, weight: float) -> float:
    """PSNR of the estimate with one weight."""
    return float(psnr(total_variation(case, {case.task: weight}), case.truth_CHW[None]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--photographs", type=Path, help="training's corpus of photographs")
    source.add_argument("--documents", type=Path, help="training's corpus of documents")
    parser.add_argument("--pictures", type=int, default=6)
    parser.add_argument("--task", choices=list(TASKS), action="append")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    be_reproducible(asked.threads)
    withheld = pictures(asked.photographs, asked.documents, asked.pictures)
    engine = ImageEngine.load("embedded")
    setup = Setup.recommended(engine)
    lines = []
    for task in asked.task or TASKS:
        cases = [
            make_case(engine, setup, "native", task, str(i), x_CHW, TASKS[task], i)
            for i, x_CHW in enumerate(withheld)
        ]
        gains = {w: mean(restored(case, w) for case in cases) for w in WEIGHTS}
        best = max(gains, key=gains.__getitem__)
        lines.append([task, *(f"{gain:.2f}" for gain in gains.values()), f"{best:g}"])
        print(lines[-1], flush=True)
    print(markdown(["task", *(f"{w:g}" for w in WEIGHTS), "best"], lines))


if __name__ == "__main__":
    main()
