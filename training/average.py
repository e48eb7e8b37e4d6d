"""Averages runs that parted from one state with different seeds, one per processor core.

    python -m training.documents.prior --out runs/first --minutes 15 --seed 0 ... &
    python -m training.documents.prior --out runs/second --minutes 15 --seed 1 ...; wait
    python -m training.average runs/first runs/second       # both go on from the mean
    python -m training.documents.prior --out runs/first --anneal 60 --seed 0 ... &
    python -m training.documents.prior --out runs/second --anneal 60 --seed 1 ...; wait
    python -m training.average runs/first-annealed runs/second-annealed --out runs/averaged

Runs that part late stay in one basin of the loss, so that the mean of their weights errs less than
either ("Model soups", Wortsman et al. 2022), and averaging now and then does nearly as much as
averaging all gradients ("Local SGD", Stich 2019). The log and the curves of the first run are
copied to ``--out``, for :mod:`training.ship`.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

MODEL, STATE = "model.safetensors", "state.pt"


def mean(trees: Sequence[Any]) -> Any:
    """Mean of the tensors in dictionaries and lists of the same form, in their precision; numbers
    and integer tensors are those of the first.
    """
    first = trees[0]
    if isinstance(first, dict):
        return {key: mean([tree[key] for tree in trees]) for key in first}
    if isinstance(first, list):
        return [mean(parts) for parts in zip(*trees, strict=True)]
    if isinstance(first, torch.Tensor) and first.is_floating_point():
        return torch.stack([tree.float() for tree in trees]).mean(0).to(first.dtype)
    return first


def average(runs: Sequence[Path], out: Path) -> None:
    """Writes the mean of the runs' models to the folder ``out``.

    Raises:
        ValueError: the runs have different shapes of networks.
    """
    configs = {(run / "config.json").read_text() for run in runs}
    if len(configs) != 1:
        raise ValueError(
            f"Runs of different networks cannot be averaged: {', '.join(map(str, runs))}."
        )
    out.mkdir(parents=True, exist_ok=True)
    save_file(mean([load_file(run / MODEL) for run in runs]), out / MODEL)
    for name in ("config.json", "log.jsonl", "curves.png"):
        shutil.copyfile(runs[0] / name, out / name)


def average_states(runs: Sequence[Path]) -> None:
    """Gives stopped runs the mean of their models and of what their optimizers remember. Each keeps
    its own steps and minutes.
    """
    states = [torch.load(run / STATE, weights_only=True, map_location="cpu") for run in runs]
    shared = mean(states)
    for run, state in zip(runs, states, strict=True):
        temporary = run / f"{STATE}.tmp"
        torch.save({**shared, "step": state["step"], "spent": state["spent"]}, temporary)
        temporary.replace(run / STATE)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", help="stopped or annealed runs")
    parser.add_argument("--out", type=Path, help="of annealed runs, a folder for the mean")
    args = parser.parse_args()
    if args.out:
        average(args.runs, args.out)
    else:
        average_states(args.runs)


if __name__ == "__main__":
    main()
