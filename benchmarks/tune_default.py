"""Compares settings of the default sampler on withheld pictures.

    python -m benchmarks.tune_default --photographs CORPUS '{}' '{"denoising": 0.4}'
    python -m benchmarks.tune_default --documents CORPUS '{}' '{"inner_steps": 6, "steps": 8}'

Restores the same withheld pictures of 128 pixels with the changed fields of every JSON object, by
the prior made for them or another (``--prior``): training's validation photographs, or its
validation pages, scans and screens (``training/README.md``). None of them is in a reported table.
Printed by task: mean PSNR with the first settings, what the others gain over them with the 95 %
interval, paired over pictures, and the mean seconds.
"""

from __future__ import annotations

import json
import time
from typing import Any

from aps_core.evaluation.cases import Case, Setup
from aps_core.evaluation.metrics import psnr
from aps_core.evaluation.run import Variant, run_method
from aps_core.evaluation.tables import markdown, mean, paired_interval
from aps_core.runtime.engine import ImageEngine
from benchmarks.withheld import study_arguments, study_cases


def compared(
    engine: ImageEngine, setup: Setup, cases: list[Case], changes: list[dict[str, Any]]
) -> list[str]:
    """Cells of a task's line in the table."""
    columns, seconds = [], []
    for change in changes:
        begun = time.perf_counter()
        variant = Variant(engine.spec.restoring_sampler, settings=change)
        restored = [run_method(engine, setup, case, variant, 0)[0] for case in cases]
        seconds.append((time.perf_counter() - begun) / len(cases))
        columns.append(
            [
                float(psnr(x_BCHW, case.truth_CHW[None]))
                for x_BCHW, case in zip(restored, cases, strict=True)
            ]
        )
    cells = [f"{mean(columns[0]):.2f} ({seconds[0]:.1f} s)"]
    for column, spent in zip(columns[1:], seconds[1:], strict=True):
        gain, low, high = paired_interval(
            [one - first for one, first in zip(column, columns[0], strict=True)]
        )
        cells.append(f"{gain:+.2f} [{low:.2f}, {high:.2f}] ({spent:.1f} s)")
    return cells


def main() -> None:
    parser = study_arguments(__doc__, pictures=9)
    parser.add_argument("settings", nargs="+", type=json.loads, help="JSON objects")
    parser.add_argument("--prior", help="default: the one specialised in such pictures")
    asked = parser.parse_args()
    usual = "embedded_documents" if asked.documents else "embedded"
    engine = ImageEngine.load(asked.prior or usual)
    setup = Setup.recommended(engine)
    lines = []
    for task, cases in study_cases(engine, asked):
        lines.append([task, *compared(engine, setup, cases, asked.settings)])
        print(lines[-1], flush=True)
    print(markdown(["task", *map(json.dumps, asked.settings)], lines))


if __name__ == "__main__":
    main()
