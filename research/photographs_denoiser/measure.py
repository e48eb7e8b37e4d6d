r"""What the denoiser of photographs gains over classical estimates and over `embedded_photographs`.

    python -m research.photographs_denoiser.measure examples/photos MORE --out rows.csv
    python -m research.photographs_denoiser.measure examples/photos --out times.csv --size 256 \
        --limit 2

Restores every photograph, reduced to ``--size`` pixels, from white noise alone and from blurs,
reductions and compression. Measurement and seed are the same for all methods. Rows are appended to
the CSV file, and an interrupted run continues. Printed by task: mean PSNR of `shrinkage`, what the
others gain over it with the 95 % interval, paired over photographs, the worst gain, and the seconds
of processor time of one picture.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.baselines import BASELINES
from aps_core.evaluation.cases import Case, Setup, make_case, own_task
from aps_core.evaluation.photographs import photographs
from aps_core.evaluation.rows import Cost, Row, append, read_rows, score
from aps_core.evaluation.run import Variant, run_method
from aps_core.evaluation.tables import markdown, mean, paired_interval
from aps_core.runtime.process import be_reproducible

TASKS: dict[str, tuple[dict[str, Any], float]] = {
    "noise 0.05": ({"type": "denoise"}, 0.05),
    "noise 0.1": ({"type": "denoise"}, 0.1),
    "noise 0.2": ({"type": "denoise"}, 0.2),
    "noise 0.4": ({"type": "denoise"}, 0.4),
    "Gaussian blur 1.5": ({"type": "gaussian_blur", "sigma": 1.5}, 0.05),
    "motion blur": ({"type": "motion_blur", "kernel_size": 15}, 0.05),
    "reduction by 4": ({"type": "super_resolution", "factor": 4}, 0.05),
    "reduction by 2": ({"type": "super_resolution", "factor": 2}, 0.05),
    "JPEG 20": ({"type": "jpeg", "quality": 20}, 0.0),
}
"""Operator and noise, with which rows name them."""
BASE = "shrinkage"
PRIORS = ("embedded_photographs", "embedded_denoiser")


def restored(engine: ImageEngine, setup: Setup, case: Case, method: str) -> tuple[Any, float]:
    """A method's picture (1, 3, H, W), and its seconds of processor time."""
    began = time.process_time()
    if method in BASELINES:
        x_BCHW = BASELINES[method](case)
    else:
        x_BCHW, _, _ = run_method(engine, setup, case, Variant(engine.spec.restoring_sampler), 0)
    return x_BCHW, time.process_time() - began


def main() -> None:
    """Reads the command line, restores, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", help="of photographs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--limit", type=int, help="photographs of each folder")
    parser.add_argument("--method", action="append", choices=[BASE, "tv", *PRIORS])
    parser.add_argument("--task", action="append", choices=list(TASKS))
    asked = parser.parse_args()
    be_reproducible(1)
    methods = asked.method or [BASE, *PRIORS]
    engines = {name: ImageEngine.load(name) for name in PRIORS}
    setups = {name: Setup.recommended(engine) for name, engine in engines.items()}
    rows = {row.key: row for row in read_rows(asked.out, Row)}
    for folder in asked.folders:
        for number, (name, x_CHW) in enumerate(photographs(folder, asked.size, asked.limit)):
            for task in asked.task or TASKS:
                fields, sigma = TASKS[task]
                for method in methods:
                    engine = engines.get(method, engines[PRIORS[0]])
                    setup = setups.get(method, setups[PRIORS[0]])
                    case = make_case(
                        engine, setup, "native", own_task(fields), name, x_CHW, sigma, number
                    )
                    key = (case.protocol, case.task, case.sigma, case.image, method)
                    if key not in rows:
                        x_BCHW, seconds = restored(engine, setup, case, method)
                        rows[key] = score(case, method, x_BCHW, Cost(seconds), None)
                        append(asked.out, rows[key])
    print(summary(list(rows.values())))


def summary(rows: list[Row]) -> str:
    """The table by task."""
    lines = []
    for task, (fields, sigma) in TASKS.items():
        told = own_task(fields)
        of_task = [r for r in rows if r.task == told and (sigma == 0 or r.sigma == sigma)]
        by_method: dict[str, dict[str, Row]] = {}
        for row in of_task:
            by_method.setdefault(row.method, {})[row.image] = row
        base = by_method.pop(BASE, {})
        if not base:
            continue
        line = [task, f"{mean([r.psnr for r in base.values()]):.2f}"]
        line.append(f"{mean([r.seconds for r in base.values()]):.1f}")
        for method in ("tv", *PRIORS):
            both = {k: r for k, r in by_method.get(method, {}).items() if k in base}
            if not both:
                line.append("")
                continue
            gains = [row.psnr - base[image].psnr for image, row in both.items()]
            gain, low, high = paired_interval(gains)
            seconds = mean([row.seconds for row in both.values()])
            line.append(
                f"{gain:+.2f} [{low:.2f}, {high:.2f}], least {min(gains):+.2f}, {seconds:.1f} s,"
                f" {len(gains)}"
            )
        lines.append(line)
    return markdown(["task", BASE, "s", "tv", *PRIORS], lines)


if __name__ == "__main__":
    main()
