r"""Character error rates of restored pages.

    apt-get install tesseract-ocr
    python -m training.documents.fetch --out CORPUS      # fonts; archives of the Debian project
    python -m research.peers.characters --corpus CORPUS --text text.tar.xz

Sets one page of new text in each font family withheld from training, degrades it, restores it with
every method, and lets tesseract read the result. Pages of which tesseract misreads more than 5 % in
the truth itself are left out. ``aps`` is the documents prior's default; ``aps, 4 samples`` is the
mean of four; ``equal logits`` stand in the prior's place and believe any estimate. Rows are
appended to a CSV file, and an interrupted run continues. Printed: mean error rates, and what
``aps`` gains over each with its 95 % interval, paired over pages. Whether samples disagree where a
character is wrong is the question of ``research/uncertainty/characters.py``.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.baselines import TV_WEIGHTS_DOCUMENTS, simple, total_variation, wiener
from aps_core.evaluation.cases import Case, Setup, make_case
from aps_core.evaluation.metrics import psnr
from aps_core.evaluation.rows import append, read_rows
from aps_core.evaluation.tables import markdown, mean
from aps_core.runtime.process import be_reproducible
from research.common.arguments import parser_of
from research.common.legibility import Page, error_rate, pages, read, require_tesseract
from research.common.tables import gained
from research.common.without_prior import EQUAL, without_prior
from research.peers.compare import default
from research.peers.models import Restore, installed

TASKS = ("sr4", "motion_blur")
SIGMA = 0.05
SAMPLES = 4
READABLE = 0.05
"""Largest error rate of the truth."""
SAMPLED = f"aps, {SAMPLES} samples"


@dataclass(frozen=True)
class Reading:
    """One page, restored and read."""

    task: str
    page: str
    method: str
    error_rate: float
    characters: int
    psnr: float
    seconds: float


def methods(documents: ImageEngine) -> dict[str, tuple[set[str], Restore]]:
    """By name: tasks, and samples (B, 3, H, W) of a case."""
    every, setup = set(TASKS), Setup.recommended(documents)
    blank, variant = without_prior(documents)[EQUAL]
    return {
        "truth": (every, lambda case: case.truth_CHW[None]),
        "input": (every, simple),
        "tv": (every, partial(total_variation, weights=TV_WEIGHTS_DOCUMENTS)),
        "wiener": ({"motion_blur"}, wiener),
        **{name: (set(peer.tasks), run) for name, (peer, run) in installed()[0].items()},
        EQUAL: (every, default(blank, setup, settings=variant.settings)),
        "aps": (every, default(documents, setup)),
        SAMPLED: (every, default(documents, setup, SAMPLES)),
    }


def examined(case: Case, page: Page, method: str, restore: Restore) -> Reading:
    """Restores and reads one page."""
    started = time.process_time()
    x_CHW = restore(case).mean(0).clamp(-1, 1)
    seconds = time.process_time() - started
    return Reading(
        task=case.task,
        page=page.name,
        method=method,
        error_rate=error_rate(page.text, read(x_CHW)),
        characters=len(page.text),
        psnr=math.inf if method == "truth" else float(psnr(x_CHW[None], case.truth_CHW[None])),
        seconds=seconds,
    )


def run(chosen: list[Page], tasks: tuple[str, ...], out: Path) -> list[Reading]:
    """Readings; those that the file has are not computed again."""
    rows = read_rows(out, Reading)
    known = {(row.task, row.page, row.method) for row in rows}
    engine = ImageEngine.load("embedded_documents")
    setup, ways = Setup.recommended(engine), methods(engine)
    for number, page in enumerate(chosen):
        for task in tasks:
            about = "native", task, page.name, page.picture_CHW, SIGMA, number
            case = make_case(engine, setup, *about)
            for method, (able, restore) in ways.items():
                if task not in able or (task, page.name, method) in known:
                    continue
                row = examined(case, page, method, restore)
                append(out, row)
                rows.append(row)
                print(task, page.name, method, f"{row.error_rate:.1%} {row.psnr:.2f}", flush=True)
    return rows


def rates(rows: list[Reading]) -> str:
    """One line per task and method."""
    found = {(row.task, row.page, row.method): row for row in rows}
    lines = []
    for task in TASKS:
        for method in dict.fromkeys(row.method for row in rows if row.task == task):
            mine = [row for row in rows if (row.task, row.method) == (task, method)]
            gains = [
                row.error_rate - found[task, row.page, "aps"].error_rate
                for row in mine
                if (task, row.page, "aps") in found
            ]
            less = "" if method == "aps" else gained(gains, ".1%")
            lines.append(
                [
                    task,
                    method,
                    f"{mean(row.error_rate for row in mine):.1%}",
                    less,
                    "" if method == "truth" else f"{mean(row.psnr for row in mine):.2f}",
                    f"{mean(row.seconds for row in mine):.1f}",
                ]
            )
    header = ["task", "method", "characters wrong", "more than aps", "PSNR dB", "CPU seconds"]
    return markdown(header, lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="of training.documents.fetch")
    parser.add_argument("--text", type=Path, required=True, help="text.tar.xz")
    parser.add_argument("--side", type=int, default=160, help="pixels of a page")
    parser.add_argument("--em", type=int, default=20, help="pixels of the type")
    parser.add_argument("--task", choices=TASKS, action="append")
    parser.add_argument("--limit", type=int, help="use the first N readable pages")
    parser.add_argument("--out", type=Path, default=Path("characters.csv"))
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    require_tesseract()
    be_reproducible(asked.threads)
    every = pages(asked.corpus, asked.text, asked.side, asked.em, seed=2029)
    readable = [x for x in every if error_rate(x.text, read(x.picture_CHW)) <= READABLE]
    chosen = readable[: asked.limit]
    print(f"{len(readable)} of {len(every)} withheld families are readable; {len(chosen)} used")
    print(rates(run(chosen, tuple(asked.task or TASKS), asked.out)))


if __name__ == "__main__":
    main()
