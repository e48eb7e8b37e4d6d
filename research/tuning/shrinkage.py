r"""What the constants of the classical estimate by shrinkage are worth, on withheld pictures.

    python -m research.tuning.shrinkage --photographs CORPUS --task denoise --task motion_blur
    python -m research.tuning.shrinkage --documents CORPUS --constant TRUST --constant LAST_ERROR

Estimates the same withheld pictures of 128 pixels (training's validation photographs, or its
validation pages, scans and screens) without a prior, with every constant as it is, less by a factor
and more by it. None of the pictures is in a reported table. Printed by task: mean PSNR as it is,
and what the other values gain with the 95 % interval, paired over pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.baselines import shrinkage
from aps_core.evaluation.cases import Case
from aps_core.evaluation.metrics import psnr
from aps_core.evaluation.tables import markdown, mean
from aps_core.operators import base
from aps_core.sampling import shrinkage_estimate
from research.common.tables import gained
from research.common.withheld import study_arguments, study_cases

FACTOR = 1.4
PLACES: dict[str, ModuleType] = {
    "THRESHOLD": shrinkage_estimate,
    "ROUNDS": shrinkage_estimate,
    "FIRST_ERROR": shrinkage_estimate,
    "LAST_ERROR": shrinkage_estimate,
    "TRUST": shrinkage_estimate,
    "ROUNDING_WEIGHT": base,
}
"""Constants and their modules."""


@contextmanager
def changed(name: str, factor: float) -> Iterator[float]:
    """One constant times a factor, a whole number if it is one; the constant's new value."""
    module = PLACES[name]
    usual: Any = getattr(module, name)
    value = type(usual)(round(usual * factor, 3))
    setattr(module, name, value)
    try:
        yield value
    finally:
        setattr(module, name, usual)


def scores(cases: list[Case]) -> list[float]:
    """PSNR of the estimates."""
    return [float(psnr(shrinkage(case), case.truth_CHW[None])) for case in cases]


def line(task: str, cases: list[Case], names: list[str]) -> list[str]:
    """Cells of a task."""
    usual = scores(cases)
    cells = [task, f"{mean(usual):.2f}"]
    for name in names:
        for factor in (1 / FACTOR, FACTOR):
            with changed(name, factor) as value:
                pairs = zip(scores(cases), usual, strict=True)
                cells.append(f"{value:g}: {gained([other - as_is for other, as_is in pairs])}")
    return cells


def main() -> None:
    parser = study_arguments(__doc__, pictures=6)
    parser.add_argument("--constant", choices=list(PLACES), action="append", default=[])
    asked = parser.parse_args()
    names = asked.constant or list(PLACES)
    engine = ImageEngine.load("embedded_documents" if asked.documents else "embedded_photographs")
    lines = []
    for task, cases in study_cases(engine, asked):
        lines.append(line(task, cases, names))
        print(lines[-1], flush=True)
    heads = [f"{name} {word}" for name in names for word in ("less", "more")]
    print(markdown(["task", "as it is", *heads], lines))


if __name__ == "__main__":
    main()
