"""Whether the spread map of several samples tells where a restoration is wrong, and how much.

    python -m research.uncertainty.maps examples/photos --prior embedded_photographs
    python -m research.uncertainty.maps examples/documents

Restores pictures of 128 pixels with four samples each. Printed for each task: the error of the
samples' mean, what the spread map says, and how much the samples alone differ, each as root mean
square over pixels and pictures; and the rank correlation of map and squared error over squares of 8
pixels, mean over pictures (1: the map orders all squares as their errors do).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.cases import Setup, make_case
from aps_core.evaluation.photographs import photographs
from aps_core.evaluation.run import Variant, sampled
from aps_core.evaluation.tables import figure, markdown, mean
from aps_core.restoration.result import spread
from aps_core.runtime.process import be_reproducible
from research.common.arguments import parser_of
from research.common.pictures import SIDE, middles
from research.common.recording import recorded
from research.common.withheld import TASKS

CHOSEN = ("sr4", "gaussian_blur", "motion_blur", "inpainting70", "hdr", "jpeg")
SAMPLES = 4
SQUARE = 8
"""Side in pixels."""


@dataclass(frozen=True)
class Row:
    """One picture: mean squares, and rank correlations with the squared error."""

    task: str
    picture: str
    error: float
    spread: float
    samples: float
    spread_rank: float
    samples_rank: float


def rank_correlation(map_HW: Tensor, error_HW: Tensor) -> float:
    """Of two maps' means over squares."""
    pooled = [F.avg_pool2d(each_HW[None], SQUARE).flatten() for each_HW in (map_HW, error_HW)]
    return float(spearmanr(*pooled).statistic)


def rows(engine: ImageEngine, pictures: list[tuple[str, Tensor]]) -> Iterator[Row]:
    """Of every picture and task."""
    setup = Setup.recommended(engine)
    variant = Variant(engine.spec.restoring_sampler, samples=SAMPLES)
    for task in CHOSEN:
        for number, (name, truth_CHW) in enumerate(pictures):
            case = make_case(engine, setup, "native", task, name, truth_CHW, TASKS[task], number)
            sample = sampled(engine, setup, case, variant, 0)
            x_BCHW = sample.x_BCHW.clamp(-1, 1)
            error_HW = (x_BCHW.mean(0) - truth_CHW).square().mean(0)
            map_HW = spread(x_BCHW, sample.deviation_BHW).square()
            samples_HW = spread(x_BCHW, None).square()
            yield Row(
                task=task,
                picture=name,
                error=float(error_HW.mean()),
                spread=float(map_HW.mean()),
                samples=float(samples_HW.mean()),
                spread_rank=rank_correlation(map_HW, error_HW),
                samples_rank=rank_correlation(samples_HW, error_HW),
            )


def table(each: list[Row]) -> str:
    """One line per task."""
    lines = []
    for task in CHOSEN:
        mine = [row for row in each if row.task == task]
        roots = [mean(r.error for r in mine), mean(r.spread for r in mine)]
        roots.append(mean(r.samples for r in mine))
        ranks = [mean(r.spread_rank for r in mine), mean(r.samples_rank for r in mine)]
        cells = [*(figure(root**0.5, 3) for root in roots), *(figure(rank, 2) for rank in ranks)]
        lines.append([task, *cells])
    columns = ["error of the mean", "spread map", "samples alone", "map ranks", "samples rank"]
    return markdown(["task", *columns], lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("pictures", type=Path, help="a folder")
    parser.add_argument("--prior", default="embedded_documents")
    parser.add_argument("--every", type=int, default=3, help="use every Nth picture")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    be_reproducible(asked.threads)
    engine = ImageEngine.load(asked.prior)
    if engine.spec.content == "documents":
        pictures = middles(asked.pictures, asked.every)
    else:
        pictures = photographs(asked.pictures, SIDE)[:: asked.every]
    file = asked.out / f"spread-{asked.prior}.csv"
    print(table(recorded(rows(engine, pictures), file)))


if __name__ == "__main__":
    main()
