"""What the studies on withheld training photographs share: their arguments, the prior, the
pictures, the log of runs.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from aps_core.runtime.engine import ImageEngine
from aps_core.runtime.process import be_reproducible
from training import corpus


@dataclass(frozen=True)
class Study:
    """A study that can be interrupted: runs are in ``log``, what they show goes to ``report``."""

    engine: ImageEngine
    photos: list[Tensor]
    """(3, 128, 128) in [-1, 1]."""
    log: Path
    report: Path


def open_study(description: str | None, name: str, photos: int) -> Study:
    """Reads the command line and loads the embedded prior and the first withheld photographs."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    be_reproducible(args.threads)
    engine = ImageEngine.load("embedded")
    pictures = [
        corpus.square(picture, 128) for picture in corpus.load(args.corpus, icons=False)[1][:photos]
    ]
    return Study(engine, pictures, args.out / f"{name}.csv", args.out / f"{name}.md")
