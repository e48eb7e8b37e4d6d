"""Restores every photograph with several variants of a sampler, into one resumable CSV file."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.cases import Case, Setup
from aps_core.evaluation.photographs import Photographs
from aps_core.evaluation.rows import Cost, Row, append, read_rows, score
from aps_core.evaluation.run import Plan, Variant, cases, run_method
from aps_core.evaluation.tables import markdown, mean
from research.common.arguments import parser_of
from research.common.tables import gained

TASKS = ("sr4", "gaussian_blur", "inpainting70", "hdr", "motion_blur")


def arguments(description: str | None, out: str) -> argparse.ArgumentParser:
    """Parser of the arguments that these studies share; rows go to the file ``out`` unless the
    user names another.
    """
    parser = parser_of(description)
    parser.add_argument("photographs", type=Path)
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument("--threads", type=int, default=1)
    return parser


def run_variants(
    variants: Mapping[str, tuple[ImageEngine, Variant]],
    photos: Photographs,
    out: Path,
    tasks: tuple[str, ...] = TASKS,
    baselines: Mapping[str, Callable[[Case], Tensor]] = MappingProxyType({}),
) -> list[Row]:
    """Rows of all baselines and variants, by name, on all tasks. Measurement and seed are the same
    for all, and so is the loss in which the misfit is given, that of the first variant's prior;
    every variant fits by the loss of its own prior.

    Rows are appended to ``out``, and those that it has are not computed again.
    """
    engine = next(engine for engine, _ in variants.values())
    plan, setups = Plan(tasks, ()), {n: Setup.recommended(e) for n, (e, _) in variants.items()}
    rows = {row.key: row for row in read_rows(out, Row)}
    for number, case in cases(engine, Setup.recommended(engine), photos, plan):
        for name in (*baselines, *variants):
            key = (case.protocol, case.task, case.sigma, case.image, name)
            if key in rows:
                continue
            started, decodes = time.perf_counter(), 0
            if name in variants:
                asked, variant = variants[name]
                x_BCHW, decodes, _ = run_method(asked, setups[name], case, variant, plan.seed)
            else:
                x_BCHW = baselines[name](case)
            cost = Cost(time.perf_counter() - started, decodes)
            rows[key] = score(case, name, x_BCHW, cost, None)
            append(out, rows[key])
        print(f"{number} {case.task}", flush=True)
    return list(rows.values())


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
            cells.append(gained([found[task, x, default] - found[task, x, other] for x in images]))
        lines.append(cells)
    return markdown(["task", *methods, *(f"gain over {name}" for name in others)], lines)
