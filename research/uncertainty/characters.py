r"""Whether the samples of a restored page disagree where a character is wrong.

    apt-get install tesseract-ocr
    python -m training.documents.fetch --out CORPUS      # fonts; archives of the Debian project
    python -m research.uncertainty.characters --corpus CORPUS --text text.tar.xz --split validation

Sets one page of new text in each font family of a split withheld from training, degrades the pages
in one of three ways in turn, draws four samples by the default of the documents prior, and lets
tesseract read the result: the sample with the lowest misfit. Characters that tesseract misreads in
the truth do not count. Every character has four scores in its box: the mean of the spread map of
the result; how much the samples differ; the mean strength of the result's edges; and the true
error of the samples' mean, which shows what a perfect map could tell. Two more are shares of
readings that do not confirm the character: of the other samples; and of the result with noise added
as large as the differences, which shows how much of the former is the program's own doubt.

Printed: how well each tells wrong characters from right ones (area under the curve, 0.5 = by
chance) over all characters, with its 95 % interval over pages, and among those of the same page;
and the mean spread beside the mean error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.cases import Case, Setup, make_case
from aps_core.evaluation.run import Variant, sampled
from aps_core.evaluation.tables import figure, markdown, mean
from aps_core.restoration.result import spread
from aps_core.runtime.process import be_reproducible
from research.common.arguments import parser_of
from research.common.legibility import (
    Page,
    auc,
    edges,
    pages,
    read,
    require_tesseract,
    wrong_characters,
)
from research.common.recording import recorded

TASKS = ("gaussian_blur", "motion_blur", "sr2")
SIGMA = 0.05
SAMPLES = 4
SEEDS = {"validation": 2030, "evaluation": 2029}
"""Of the text, by split."""


@dataclass(frozen=True)
class Character:
    """One printed character of a result."""

    task: str
    page: str
    position: int
    wrong: int
    """1 if tesseract misreads it."""
    spread: float
    """Of the result's map."""
    samples: float
    """Their standard deviation."""
    edges: float
    error: float
    """Of the samples' mean, root mean square."""
    unconfirmed: float
    """Share of the other samples where tesseract does not read it."""
    unconfirmed_in_noise: float
    """The same, of copies of the result with noise in the place of the other samples."""


class Drawn(NamedTuple):
    """Samples of one page."""

    x_BCHW: Tensor
    deviation_BHW: Tensor
    """Errors that they share, as the sampler expects."""


def drawn(engine: ImageEngine, setup: Setup, case: Case, kept: Path) -> Drawn:
    """Samples, from the file ``kept`` if it exists."""
    if not kept.exists():
        variant = Variant(engine.spec.restoring_sampler, samples=SAMPLES)
        sample = sampled(engine, setup, case, variant, 0)
        assert sample.deviation_BHW is not None
        torch.save((sample.x_BCHW.clamp(-1, 1), sample.deviation_BHW), kept)
    return Drawn(*torch.load(kept))


def unconfirmed(truth: str, result: str, others: Sequence[str]) -> list[float]:
    """For each character of ``truth``, the share of readings ``others`` that do not have what
    ``result`` has in its place; where it has nothing, the largest of the neighbours' shares.
    """
    doubted = [wrong_characters(result, other) for other in others]
    shares = [mean(map(float, each)) for each in zip(*doubted, strict=True)]
    found: list[float | None] = [None] * len(truth)
    for block in Levenshtein.opcodes(truth, result):
        for i, j in zip(
            range(block.src_start, block.src_end),
            range(block.dest_start, block.dest_end),
            strict=False,
        ):
            found[i] = shares[j]
    padded = [None, *found, None]
    neighbours = zip(padded, padded[2:], strict=False)
    return [
        max((n for n in near if n is not None), default=1.0) if share is None else share
        for share, near in zip(found, neighbours, strict=True)
    ]


def noisy(samples: Drawn, x_CHW: Tensor) -> Tensor:
    """Copies of a result with white noise, one for each of the other samples, which differ from it
    as much as they do.
    """
    others = len(samples.x_BCHW) - 1
    differing_HW = 2**0.5 * spread(samples.x_BCHW, None)
    generator = torch.Generator().manual_seed(0)
    noise_B1HW = torch.randn((others, 1, *differing_HW.shape), generator=generator)
    return (x_CHW + differing_HW * noise_B1HW).clamp(-1, 1)


def characters(case: Case, page: Page, samples: Drawn) -> list[Character]:
    """The characters that tesseract reads in the truth."""
    x_BCHW = samples.x_BCHW
    best = int(case.objective(x_BCHW)[1].argmin())
    x_CHW = x_BCHW[best]
    result, *others = [read(x_CHW), *(read(x) for i, x in enumerate(x_BCHW) if i != best)]
    copies = [read(copy_CHW) for copy_CHW in noisy(samples, x_CHW)]
    wrong = wrong_characters(page.text, result)
    unreadable = wrong_characters(page.text, read(page.picture_CHW))
    doubts = unconfirmed(page.text, result, others)
    doubts_in_noise = unconfirmed(page.text, result, copies)
    spread_HW, edges_HW = spread(*samples), edges(x_CHW)
    samples_HW = spread(x_BCHW, None)
    squared_HW = (x_BCHW.mean(0) - page.picture_CHW).square().mean(0)
    found = []
    for position, box in enumerate(page.boxes):
        if box is None or unreadable[position]:
            continue
        left, top, right, bottom = box
        inside = np.s_[top:bottom, left:right]
        found.append(
            Character(
                task=case.task,
                page=page.name,
                position=position,
                wrong=int(wrong[position]),
                spread=float(spread_HW[inside].mean()),
                samples=float(samples_HW[inside].mean()),
                edges=float(edges_HW[inside].mean()),
                error=float(squared_HW[inside].mean().sqrt()),
                unconfirmed=doubts[position],
                unconfirmed_in_noise=doubts_in_noise[position],
            )
        )
    return found


def run(chosen: list[Page], kept: Path) -> list[Character]:
    """Characters of all pages; samples in the folder ``kept`` are not drawn again."""
    kept.mkdir(parents=True, exist_ok=True)
    engine = ImageEngine.load("embedded_documents")
    setup = Setup.recommended(engine)
    found = []
    for number, page in enumerate(chosen):
        task = TASKS[number % len(TASKS)]
        about = "native", task, page.name, page.picture_CHW, SIGMA, number
        case = make_case(engine, setup, *about)
        each = characters(case, page, drawn(engine, setup, case, kept / f"{page.name}-{task}.pt"))
        print(task, page.name, f"{sum(c.wrong for c in each)} of {len(each)} wrong", flush=True)
        found += each
    return found


SCORES: dict[str, Callable[[Character], float]] = {
    "spread": lambda character: character.spread,
    "samples": lambda character: character.samples,
    "faint edges": lambda character: -character.edges,
    "true error": lambda character: character.error,
    "read differently": lambda character: character.unconfirmed,
    "read differently in noise": lambda character: character.unconfirmed_in_noise,
}


def area(each: Sequence[Character], score: str) -> float:
    """Area under the curve over all characters, of one of :data:`SCORES`."""
    wrong = np.array([bool(character.wrong) for character in each])
    return auc([SCORES[score](character) for character in each], wrong)


def by_page(each: Sequence[Character]) -> list[list[Character]]:
    """Characters of each page."""
    found: dict[str, list[Character]] = {}
    for character in each:
        found.setdefault(character.page, []).append(character)
    return list(found.values())


def resampled_area(each: Sequence[Character], score: str) -> str:
    """Area under the curve with its 95 % interval over pages."""
    groups, generator = by_page(each), np.random.default_rng(0)
    drawn = [
        area([character for number in numbers for character in groups[number]], score)
        for numbers in generator.integers(0, len(groups), (1000, len(groups)))
    ]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return f"{figure(area(each, score), 2)} [{figure(low, 2)}, {figure(high, 2)}]"


def area_within_pages(each: Sequence[Character], score: str) -> float:
    """Area under the curve if only characters of the same page are compared."""
    total, pairs = 0.0, 0
    for group in by_page(each):
        wrong = sum(character.wrong for character in group)
        possible = wrong * (len(group) - wrong)
        if possible:
            total, pairs = total + possible * area(group, score), pairs + possible
    return total / pairs if pairs else math.nan


def table(each: list[Character]) -> str:
    """One line per task, and one for all."""
    lines = []
    for task in (*dict.fromkeys(character.task for character in each), "all"):
        mine = [character for character in each if task in (character.task, "all")]
        cells = [task, f"{sum(c.wrong for c in mine)} of {len(mine)}"]
        for score in SCORES:
            cells += [resampled_area(mine, score), figure(area_within_pages(mine, score), 2)]
        deviations = mean(c.spread for c in mine), mean(c.error for c in mine)
        lines.append([*cells, *(figure(deviation, 3) for deviation in deviations)])
    areas = [heading for score in SCORES for heading in (score, f"{score}, same page")]
    return markdown(["task", "wrong", *areas, "mean spread", "mean error"], lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="of training.documents.fetch")
    parser.add_argument("--text", type=Path, required=True, help="text.tar.xz")
    parser.add_argument("--split", choices=SEEDS, default="evaluation")
    parser.add_argument("--side", type=int, default=96, help="pixels of a page")
    parser.add_argument("--em", type=int, default=10, help="pixels of the type")
    parser.add_argument("--limit", type=int, help="use the first N pages")
    parser.add_argument("--kept", type=Path, default=Path("guesses"), help="folder of the samples")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    require_tesseract()
    asked.out.mkdir(parents=True, exist_ok=True)
    be_reproducible(asked.threads)
    about = asked.corpus, asked.text, asked.side, asked.em, SEEDS[asked.split], asked.split
    each = run(pages(*about)[: asked.limit], asked.kept / asked.split)
    print(table(recorded(each, asked.out / f"guesses-{asked.split}.csv")))


if __name__ == "__main__":
    main()
