"""Shared set-up of studies on pictures that training withholds: arguments, prior, pictures, log."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.cases import Case, Setup, make_case, own_task
from aps_core.runtime.process import be_reproducible
from research.common.arguments import parser_of
from training import corpus
from training.documents.prior import held_out

TASKS = {
    "sr2": 0.05,
    "sr4": 0.05,
    "gaussian_blur": 0.05,
    "motion_blur": 0.05,
    "inpainting50": 0.05,
    "inpainting70": 0.05,
    "hdr": 0.05,
    "jpeg": 0.05,
    "denoise": 0.2,
}
"""Noise by task."""


@dataclass(frozen=True)
class Study:
    """A resumable study; runs are appended to ``log``, the summary is written to ``report``."""

    engine: ImageEngine
    photos: list[Tensor]
    """(3, 128, 128) in [-1, 1]."""
    log: Path
    report: Path


def open_study(description: str | None, log: Path, photos: int) -> Study:
    """Reads the command line and loads the embedded prior and the first withheld photographs. The
    report is beside the log.
    """
    parser = parser_of(description)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=log)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    be_reproducible(args.threads)
    engine = ImageEngine.load("embedded")
    pictures = [
        corpus.square(picture, 128) for picture in corpus.load(args.corpus, icons=False)[1][:photos]
    ]
    return Study(engine, pictures, args.out, args.out.with_suffix(".md"))


def study_arguments(description: str | None, pictures: int) -> argparse.ArgumentParser:
    """Parser of the arguments of :func:`study_cases`, by default with so many ``pictures``."""
    parser = parser_of(description)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--photographs", type=Path, help="training's corpus of photographs")
    source.add_argument("--documents", type=Path, help="training's corpus of documents")
    parser.add_argument("--pictures", type=int, default=pictures)
    parser.add_argument("--task", choices=list(TASKS), action="append", default=[])
    parser.add_argument(
        "--operator", type=json.loads, action="append", default=[], help="JSON, a task of its own"
    )
    parser.add_argument("--sigma", type=float, help="noise (default: the task's, or 0.05)")
    parser.add_argument("--threads", type=int, default=1)
    return parser


def study_cases(engine: ImageEngine, asked: argparse.Namespace) -> Iterator[tuple[str, list[Case]]]:
    """Every task with a case for each withheld picture. Sets the number of threads."""
    be_reproducible(asked.threads)
    withheld = _pictures(asked.photographs, asked.documents, asked.pictures)
    setup = Setup.recommended(engine)
    for task in [*asked.task, *map(own_task, asked.operator)] or TASKS:
        sigma = asked.sigma if asked.sigma is not None else TASKS.get(task, 0.05)
        yield (
            task,
            [
                make_case(engine, setup, "native", task, str(i), x_CHW, sigma, i)
                for i, x_CHW in enumerate(withheld)
            ],
        )


def _pictures(photographs: Path | None, documents: Path | None, count: int) -> list[Tensor]:
    """(3, 128, 128) in [-1, 1]; of documents, the kinds in turn."""
    if photographs is not None:
        found = corpus.load(photographs, icons=False)[1]
        return [corpus.square(picture, 128) for picture in found[:count]]
    assert documents is not None
    kinds = list(held_out(documents).values())
    return [kinds[i % len(kinds)][i // len(kinds)] for i in range(count)]
