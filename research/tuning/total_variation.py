r"""Chooses the weight of the total-variation baseline for each task on withheld pictures.

    python -m research.tuning.total_variation --photographs CORPUS
    python -m research.tuning.total_variation --documents CORPUS

Runs every weight on the same withheld pictures of 128 pixels: training's validation photographs, or
its validation pages, scans and screens (``training/README.md``). None of them is in a reported
table. Prints the mean PSNR of every weight and the best one by task, which
``aps_core/evaluation/baselines.py`` records.
"""

from __future__ import annotations

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.baselines import total_variation
from aps_core.evaluation.cases import Case
from aps_core.evaluation.metrics import psnr
from aps_core.evaluation.tables import markdown, mean
from research.common.withheld import study_arguments, study_cases

WEIGHTS = (1.0, 2.0, 4.0, 8.0, 16.0)


def restored(case: Case, weight: float) -> float:
    """PSNR of the estimate with one weight."""
    return float(psnr(total_variation(case, {case.task: weight}), case.truth_CHW[None]))


def main() -> None:
    parser = study_arguments(__doc__, pictures=6)
    asked = parser.parse_args()
    engine = ImageEngine.load("embedded")
    lines = []
    for task, cases in study_cases(engine, asked):
        gains = {w: mean(restored(case, w) for case in cases) for w in WEIGHTS}
        best = max(gains, key=gains.__getitem__)
        lines.append([task, *(f"{gain:.2f}" for gain in gains.values()), f"{best:g}"])
        print(lines[-1], flush=True)
    print(markdown(["task", *(f"{w:g}" for w in WEIGHTS), "best"], lines))


if __name__ == "__main__":
    main()
