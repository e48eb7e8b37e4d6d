r"""Compares settings of the default sampler, or weights of a prior, on withheld pictures.

    python -m research.tuning.default --photographs CORPUS '{}' '{"denoising": 0.4}'
    python -m research.tuning.default --documents CORPUS '{}' '{"inner_steps": 6, "steps": 8}'
    python -m research.tuning.default --documents CORPUS '{}' runs/documents-annealed
    python -m research.tuning.default --photographs CORPUS --prior embedded_photographs \
        --operator '{"type": "gaussian_blur", "sigma": 0.7}' --sigma 0.02 '{}'

Restores the same withheld pictures of 128 pixels with the changed fields of every JSON object, or
with the weights in a run's folder, by the prior made for them or another (``--prior``): training's
validation photographs, or its validation pages, scans and screens (``training/README.md``). None of
them is in a reported table. Printed by task: mean PSNR with the first, what the others gain over it
with the 95 % interval, paired over pictures, and the mean seconds.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.cases import Case, Setup
from aps_core.evaluation.metrics import psnr
from aps_core.evaluation.run import Variant, run_method
from aps_core.evaluation.tables import markdown, mean
from aps_core.priors.convolutional.network import ConvolutionalPrior, load_convolutional
from aps_core.runtime.precision import fast_dtype
from research.common.tables import gained
from research.common.withheld import study_arguments, study_cases

Change = dict[str, Any] | Path


def change(text: str) -> Change:
    """Settings, if it is JSON; otherwise a folder of weights."""
    return dict(json.loads(text)) if text.startswith("{") else Path(text)


def changed(engine: ImageEngine, change: Change) -> tuple[ImageEngine, dict[str, Any]]:
    """The engine with a folder's weights, or with settings for its sampler."""
    if not isinstance(change, Path):
        return engine, change
    assert isinstance(engine.prior, ConvolutionalPrior)
    dtype = fast_dtype(engine.device)
    prior = load_convolutional(change, engine.prior.tokenizer, engine.device, dtype)
    return ImageEngine(engine.spec, prior, engine.device), {}


def compared(
    usual: ImageEngine, setup: Setup, cases: list[Case], changes: list[Change]
) -> list[str]:
    """Cells of a task's line in the table."""
    columns, seconds = [], []
    for each in changes:
        engine, settings = changed(usual, each)
        variant = Variant(engine.spec.restoring_sampler, settings=settings)
        begun = time.perf_counter()
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
        gain = gained([one - first for one, first in zip(column, columns[0], strict=True)])
        cells.append(f"{gain} ({spent:.1f} s)")
    return cells


def main() -> None:
    parser = study_arguments(__doc__, pictures=9)
    parser.add_argument("changes", nargs="+", type=change, help="JSON objects or folders")
    parser.add_argument("--prior", help="default: the one specialised in such pictures")
    asked = parser.parse_args()
    usual = "embedded_documents" if asked.documents else "embedded"
    engine = ImageEngine.load(asked.prior or usual)
    setup = Setup.recommended(engine)
    lines = []
    for task, cases in study_cases(engine, asked):
        lines.append([task, *compared(engine, setup, cases, asked.changes)])
        print(lines[-1], flush=True)
    print(markdown(["task", *map(str, asked.changes)], lines))


if __name__ == "__main__":
    main()
