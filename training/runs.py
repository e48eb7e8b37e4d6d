"""What the stages share: options, runs that go on for days, annealed copies of them."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch

from training.schedule import Anneal, Constant, Schedule

START = "start.txt"
"""File of an annealed run: the minutes after which its rate falls."""


def parser(
    description: str | None, minutes: float, batch: int, batch_help: str
) -> argparse.ArgumentParser:
    """The options that every stage has."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--corpus", type=Path, required=True, help="folder with the training pictures"
    )
    made.add_argument(
        "--out", type=Path, required=True, help="run folder; an existing run is resumed"
    )
    made.add_argument(
        "--minutes", type=float, help=f"compute in all, by default {minutes:g}; may be raised later"
    )
    made.set_defaults(default_minutes=minutes)
    made.add_argument(
        "--anneal",
        type=float,
        metavar="MINUTES",
        help="end a copy of the run, or, if there is none, a new one after --minutes",
    )
    made.add_argument("--batch", type=int, default=batch, help=batch_help)
    made.add_argument("--rate", type=float, default=2e-3)
    made.add_argument("--threads", type=int)
    made.add_argument("--seed", type=int, default=0)
    return made


def folder_and_schedule(args: argparse.Namespace) -> tuple[Path, Schedule]:
    """The run's folder and schedule: constant, or with ``--anneal`` annealing, in a copy of a
    constant run. Without one, the run itself is constant for ``--minutes`` and then annealed.

    Raises:
        SystemExit: ``--anneal`` without ``--minutes``, and there is no run to copy.
    """
    if not args.anneal:
        args.out.mkdir(parents=True, exist_ok=True)
        return args.out, Constant(args.minutes or args.default_minutes)
    own = args.out / START
    if not (args.out / "state.pt").exists():
        if args.minutes is None:
            raise SystemExit(f"No run in {args.out}; to start one that anneals, give --minutes.")
        args.out.mkdir(parents=True, exist_ok=True)
        own.write_text(f"{args.minutes}\n")
    out, start = (args.out, read_start(own)) if own.exists() else annealed_copy(args.out)
    return out, Anneal(start, start + args.anneal)


def read_start(file: Path) -> float:
    """Minutes after which a run is annealed."""
    return float(file.read_text())


def annealed_copy(out: Path) -> tuple[Path, float]:
    """``OUT-annealed`` with a copy of the run's state, and the minutes at which it was taken.

    An annealing run that is there already is continued; remove the folder to take a later state.
    """
    target = out.with_name(f"{out.name}-annealed")
    start = target / START
    if not start.exists():
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out / "state.pt", target / "state.pt")
        spent = torch.load(target / "state.pt", weights_only=True, map_location="cpu")["spent"]
        start.write_text(f"{spent}\n")
    return target, read_start(start)
