r"""Character error rates of restored pages, and whether samples disagree where they are wrong.

    apt-get install tesseract-ocr
    python -m training.documents.fetch --out CORPUS      # fonts; archives of the Debian project
    python -m benchmarks.characters --corpus CORPUS --text text.tar.xz

Sets one page of new text in each font family withheld from training, degrades it, restores it with
every method, and lets tesseract read the result. Pages of which tesseract misreads more than 5 % in
the truth itself are left out. ``aps`` is the documents prior's default; ``aps, 4 samples`` is the
mean of four. Rows are appended to two CSV files, one line a page and one a character, and an
interrupted run continues. Printed: mean error rates, what ``aps`` gains over each with its 95 %
interval, paired over pages; and how well the spread of the four samples tells wrong pixels and
wrong characters of their mean from right ones (area under the curve, 0.5 = by chance), beside the
strength of the mean's edges, which needs no samples.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from aps_core.evaluation.baselines import TV_WEIGHTS_DOCUMENTS, simple, total_variation, wiener
from aps_core.evaluation.cases import Case, Setup, make_case
from aps_core.evaluation.metrics import psnr
from aps_core.evaluation.rows import append, read_rows
from aps_core.evaluation.tables import figure, markdown, mean, paired_interval
from aps_core.runtime.engine import ImageEngine
from aps_core.runtime.process import be_reproducible
from benchmarks.legibility import (
    Page,
    auc,
    edges,
    error_rate,
    pages,
    read,
    require_tesseract,
    spread,
    wrong_characters,
    wrong_pixels,
)
from benchmarks.peer_models import Restore, installed
from benchmarks.peers import default
from benchmarks.prior_share import EqualLogits

TASKS = ("sr4", "motion_blur")
SIGMA = 0.05
SAMPLES = 4
READABLE = 0.05
"""Largest error rate of the truth."""
SAMPLED = f"aps, {SAMPLES} samples"


@dataclass(frozen=True)
class Reading:
    """One page, restored and read. The last two are NaN but for several samples."""

    task: str
    page: str
    method: str
    error_rate: float
    characters: int
    psnr: float
    seconds: float
    spread_auc: float
    edges_auc: float


@dataclass(frozen=True)
class Character:
    """One character of the mean of several samples."""

    task: str
    page: str
    position: int
    wrong: int
    spread: float
    """Mean over the character's box."""
    edges: float


def methods(documents: ImageEngine) -> dict[str, tuple[set[str], Restore]]:
    """By name: tasks, and samples (B, 3, H, W) of a case."""
    every, setup = set(TASKS), Setup.recommended(documents)
    blank = ImageEngine(documents.spec, EqualLogits(documents.prior.tokenizer), documents.device)
    return {
        "truth": (every, lambda case: case.truth_CHW[None]),
        "input": (every, simple),
        "tv": (every, partial(total_variation, weights=TV_WEIGHTS_DOCUMENTS)),
        "wiener": ({"motion_blur"}, wiener),
        **{name: (set(peer.tasks), run) for name, (peer, run) in installed()[0].items()},
        "equal logits": (every, default(blank, setup)),
        "aps": (every, default(documents, setup)),
        SAMPLED: (every, default(documents, setup, SAMPLES)),
    }


def examined(case: Case, page: Page, method: str, restore: Restore) -> tuple[Reading, Tensor]:
    """Restores and reads one page."""
    started = time.process_time()
    x_BCHW = restore(case)
    seconds = time.process_time() - started
    x_CHW = x_BCHW.mean(0).clamp(-1, 1)
    areas = float("nan"), float("nan")
    if len(x_BCHW) > 1:
        wrong = wrong_pixels(x_CHW, case.truth_CHW).ravel()
        areas = auc(spread(x_BCHW).ravel(), wrong), auc(edges(x_CHW).ravel(), wrong)
    rate = error_rate(page.text, read(x_CHW))
    quality = float(psnr(x_CHW[None], case.truth_CHW[None])) if method != "truth" else float("inf")
    about = case.task, page.name, method, rate, len(page.text)
    return Reading(*about, quality, seconds, *areas), x_BCHW


def characters(case: Case, page: Page, x_BCHW: Tensor) -> list[Character]:
    """Every printed character of the page: whether it was misread, and what its box shows."""
    x_CHW = x_BCHW.mean(0).clamp(-1, 1)
    wrong = wrong_characters(page.text, read(x_CHW))
    disagreement, strength = spread(x_BCHW), edges(x_CHW)
    found = []
    for position, box in enumerate(page.boxes):
        if box is not None:
            left, top, right, bottom = box
            inside = np.s_[top:bottom, left:right]
            found.append(
                Character(
                    task=case.task,
                    page=page.name,
                    position=position,
                    wrong=int(wrong[position]),
                    spread=float(disagreement[inside].mean()),
                    edges=float(strength[inside].mean()),
                )
            )
    return found


def run(
    chosen: list[Page], tasks: tuple[str, ...], out: Path
) -> tuple[list[Reading], list[Character]]:
    """Readings and characters; those that the files have are not computed again."""
    letters = out.with_name(f"{out.stem}-letters.csv")
    rows, each = read_rows(out, Reading), read_rows(letters, Character)
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
                row, x_BCHW = examined(case, page, method, restore)
                if method == SAMPLED:
                    for character in characters(case, page, x_BCHW):
                        append(letters, character)
                        each.append(character)
                append(out, row)
                rows.append(row)
                print(task, page.name, method, f"{row.error_rate:.1%} {row.psnr:.2f}", flush=True)
    return rows, each


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
            gain, low, high = paired_interval(gains)
            less = "" if method == "aps" else f"{gain:+.1%} [{low:.1%}, {high:.1%}]"
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


def resampled_auc(each: list[Character], measure: str) -> tuple[float, float, float]:
    """Area under the curve over all characters, with its 95 % interval over pages."""
    by_page: dict[str, list[Character]] = {}
    for character in each:
        by_page.setdefault(character.page, []).append(character)

    def area(names: list[str]) -> float:
        some = [character for name in names for character in by_page[name]]
        values = [float(getattr(character, measure)) for character in some]
        return auc(values, np.array([bool(character.wrong) for character in some]))

    if len({character.wrong for character in each}) < 2:
        return math.nan, math.nan, math.nan
    names, generator = list(by_page), np.random.default_rng(0)
    drawn = [area(list(generator.choice(names, len(names)))) for _ in range(1000)]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return area(names), float(low), float(high)


def disagreement(rows: list[Reading], each: list[Character]) -> str:
    """One line per task: how well spread and edges foretell wrong pixels and characters."""
    lines = []
    for task in TASKS:
        mine = [row for row in rows if (row.task, row.method) == (task, SAMPLED)]
        letters = [character for character in each if character.task == task]
        if not letters:
            continue
        cells = [task]
        for measure in ("spread_auc", "edges_auc"):
            middle, low, high = paired_interval([getattr(row, measure) for row in mine])
            cells.append(f"{middle:.2f} [{figure(low, 2)}, {figure(high, 2)}]")
        cells.append(f"{sum(x.wrong for x in letters)} of {len(letters)}")
        for measure in ("spread", "edges"):
            middle, low, high = resampled_auc(letters, measure)
            cells.append(f"{figure(middle, 2)} [{figure(low, 2)}, {figure(high, 2)}]")
        lines.append(cells)
    header = ["task", "pixels: spread", "pixels: edges", "wrong characters"]
    return markdown([*header, "characters: spread", "characters: edges"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    rows, each = run(chosen, tuple(asked.task or TASKS), asked.out)
    print(rates(rows), disagreement(rows, each), sep="\n\n")


if __name__ == "__main__":
    main()
