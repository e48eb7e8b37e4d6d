"""Tunes every sampler on withheld training photographs, each with the same number of runs.

    python -m research.tuning.samplers --corpus CORPUS

Stage 1 runs all settings of a sampler's grid on one 4x super-resolution case and one inpainting
case with 70 % of pixels missing. Stage 2 runs the six best settings on one blurred and one clipped
photograph. Stage 3 runs the two best of these on two further cases of stage 1's kinds. The setting
with the highest mean PSNR over all six cases wins. A grid has eight settings, or more if the best
one was at its edge. All settings use the same number of decodes. An interrupted study can be
resumed. Runs are written to ``research/tuning/sampler-tuning.csv``, the result to
``sampler-tuning.md``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from aps_core import evaluation
from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.rows import Cost, append, read_rows, score
from research.common.withheld import open_study

GRIDS: dict[str, list[dict[str, Any]]] = {
    "aps": [
        {},
        {"learning_rate": 6.0},
        {"steps": 30, "inner_steps": 10},
        {"steps": 10, "inner_steps": 30},
        {"learning_rate": 2.0},
        {"learning_rate": 10.0},
        {"learning_rate": 6.0, "steps": 10, "inner_steps": 30},
        {"learning_rate": 2.0, "steps": 5, "inner_steps": 60},
        {"learning_rate": 0.5, "steps": 5, "inner_steps": 60},
        {"learning_rate": 1.0, "steps": 10, "inner_steps": 30},
        {"learning_rate": 1.5, "steps": 10, "inner_steps": 30},
        {"learning_rate": 1.0},
    ],
    "single_optimisation": [
        {"learning_rate": 3.0},
        {"learning_rate": 1.0},
        {"learning_rate": 0.3},
        {"learning_rate": 0.5},
        {"learning_rate": 0.2},
        {"learning_rate": 0.15},
        {"learning_rate": 0.1},
        {"learning_rate": 0.05},
        {"learning_rate": 0.03},
    ],
    "g2d2": [
        {},
        {"learning_rate": 1.0, "kl_weight": 0.01},
        {"steps": 30, "inner_steps": 10},
        {"steps": 10, "inner_steps": 30},
        {"gumbel_temperature": 0.3},
        {"revision": 0.1},
        {"kl_weight": 0.0},
        {"learning_rate": 30.0},
        {"learning_rate_decades": 0.0},
        {"learning_rate_decades": 0.0, "revision": 0.1, "forget": 0.1},
        {"learning_rate_decades": 0.0, "revision": 0.1, "forget": 0.1, "learning_rate": 5.0},
        {"learning_rate_decades": 0.0, "revision": 0.1, "forget": 0.1, "learning_rate": 3.0},
        {"learning_rate_decades": 0.0, "revision": 0.1, "forget": 0.1, "learning_rate": 2.0},
        {
            "learning_rate_decades": 0.0,
            "revision": 0.1,
            "forget": 0.1,
            "learning_rate": 5.0,
            "steps": 5,
            "inner_steps": 60,
        },
    ],
    "sgdd": [
        {"denoise_steps": 16, "alpha": 10.0, "steps": 15, "mh_steps": 19},
        {"denoise_steps": 16, "alpha": 1.0, "steps": 15, "mh_steps": 19},
        {"denoise_steps": 16, "alpha": 10.0, "steps": 50, "mh_steps": 5},
        {"denoise_steps": 16, "alpha": 0.1, "steps": 15, "mh_steps": 19},
        {"denoise_steps": 16, "alpha": 0.01, "steps": 15, "mh_steps": 19},
        {"denoise_steps": 16, "alpha": 1.0, "steps": 5, "mh_steps": 59},
        {"denoise_steps": 16, "alpha": 0.1, "steps": 5, "mh_steps": 59},
        {"denoise_steps": 16, "alpha": 1.0, "steps": 2, "mh_steps": 149},
    ],
    "svdd": [
        {"order_temperature": 40.0},
        {"order_temperature": 40.0, "steps": 5, "candidates": 60},
        {"order_temperature": 40.0, "steps": 30, "candidates": 10},
        {"order_temperature": 1.0},
        {"order_temperature": 10.0},
        {"order_temperature": 1000.0},
        {"order_temperature": 40.0, "steps": 20, "candidates": 15},
        {"order_temperature": 40.0, "temperature": 1.0},
    ],
}
"""Grid of each sampler's own settings; :meth:`aps_core.samplers.base.SamplerSpec.like` derives the
others from ``START``.
"""
START: dict[str, Any] = {"steps": 15, "inner_steps": 20, "learning_rate": 3.0}
"""Settings of APS before tuning, corresponding to its first grid entry ``{}``."""

STAGES = (
    ((0, "sr4"), (1, "inpainting70")),
    ((0, "gaussian_blur"), (2, "hdr")),
    ((2, "sr4"), (3, "inpainting70")),
)
"""Cases of each stage: index of the photograph and degradation."""
ADMITTED = (None, 6, 2)
"""Number of settings per sampler in each stage."""


@dataclass(frozen=True)
class Run:
    """One run: sampler, settings as JSON, case and results."""

    method: str
    settings: str
    photo: int
    task: str
    psnr: float
    ssim: float
    misfit_over_floor: float
    decodes: int
    cpu_seconds: float


def todo(done: list[Run]) -> Iterator[tuple[str, str, int, str]]:
    """Returns the remaining runs. They depend on earlier stages, so call this after every run."""
    been = {(r.method, r.settings, r.photo, r.task) for r in done}
    cases: tuple[tuple[int, str], ...] = ()
    for stage, admitted in zip(STAGES, ADMITTED, strict=True):
        for method in GRIDS:
            contenders = ranked(done, method, cases)[:admitted]
            yield from (
                (method, settings, *case)
                for settings in contenders
                for case in stage
                if (method, settings, *case) not in been
            )
        cases += stage


def ranked(runs: list[Run], method: str, cases: tuple[tuple[int, str], ...]) -> list[str]:
    """Settings of a method that were run on all ``cases``, best first."""
    score: dict[str, float] = {}
    for settings in (json.dumps(settings) for settings in GRIDS[method]):
        mine = {
            (r.photo, r.task): r.psnr for r in runs if (r.method, r.settings) == (method, settings)
        }
        if all(case in mine for case in cases):
            score[settings] = mean(mine[case] for case in cases) if cases else 0.0
    return sorted(score, key=score.__getitem__, reverse=True)


def run(engine: ImageEngine, method: str, settings: str, photo: int, task: str, x: Any) -> Run:
    """Executes one run with seed 0; the measurement noise depends only on the photograph."""
    setup = evaluation.Setup.recommended(engine, START)
    case = evaluation.make_case(engine, setup, "native", task, str(photo), x, 0.05, photo)
    started = time.process_time()
    x, decodes, _ = evaluation.run_method(
        engine, setup, case, evaluation.Variant(method, settings=json.loads(settings)), 0
    )
    seconds = time.process_time() - started
    row = score(case, method, x, Cost(seconds, decodes), None)
    return Run(
        method=method,
        settings=settings,
        photo=photo,
        task=task,
        psnr=round(row.psnr, 3),
        ssim=round(row.ssim, 4),
        misfit_over_floor=round(row.residual, 3),
        decodes=decodes,
        cpu_seconds=round(seconds, 1),
    )


def table(runs: list[Run]) -> str:
    """Markdown table of the means of all settings, with the selected ones in bold."""
    lines = [
        (
            "| sampler | settings | cases | PSNR dB | misfit over noise floor | decodes | CPU"
            " seconds |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for method in GRIDS:
        best = (ranked(runs, method, sum(STAGES, ())) or [""])[0]
        for settings in (json.dumps(settings) for settings in GRIDS[method]):
            mine = [r for r in runs if (r.method, r.settings) == (method, settings)]
            if mine:
                psnr, misfit, seconds = (
                    mean(getattr(r, name) for r in mine)
                    for name in ("psnr", "misfit_over_floor", "cpu_seconds")
                )
                named = f"**{settings}**" if settings == best else settings
                lines.append(
                    f"| {method} | {named} | {len(mine)} | {psnr:.2f} | {misfit:.2f} |"
                    f" {mine[0].decodes} | {seconds:.1f} |"
                )
    chosen = {
        method: json.loads(found[0])
        for method in GRIDS
        if (found := ranked(runs, method, sum(STAGES, ())))
    }
    return "\n".join(
        [
            *lines,
            "",
            f"Chosen, as `recommended` (APS) and `tuned` (the others) of the prior: `{chosen}`",
        ]
    )


def main() -> None:
    study = open_study(__doc__, Path(__file__).with_name("sampler-tuning.csv"), 4)
    runs = read_rows(study.log, Run)
    while following := next(todo(runs), None):
        runs.append(run(study.engine, *following, study.photos[following[2]]))
        print(runs[-1], flush=True)
        append(study.log, runs[-1])
        study.report.write_text(table(runs) + "\n")


if __name__ == "__main__":
    main()
