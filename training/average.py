"""Averages the weights of runs that were annealed from one state with different seeds.

    cp -r runs/documents runs/second
    python -m training.documents.prior --out runs/documents --anneal 60 --seed 0 ... &
    python -m training.documents.prior --out runs/second --anneal 60 --seed 1 ...
    python -m training.average runs/documents-annealed runs/second-annealed --out runs/averaged

One run per processor core needs no exchange between them. Runs that part late stay in one basin of
the loss, so that the mean of their weights errs less than either ("Model soups", Wortsman et al.
2022). The log and the curves of the first run are copied, for :mod:`training.ship`.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


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
    models = [load_file(run / "model.safetensors") for run in runs]
    out.mkdir(parents=True, exist_ok=True)
    mean = {
        name: torch.stack([model[name].float() for model in models]).mean(0).to(tensor.dtype)
        for name, tensor in models[0].items()
    }
    save_file(mean, out / "model.safetensors")
    for name in ("config.json", "log.jsonl", "curves.png"):
        shutil.copyfile(runs[0] / name, out / name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", help="annealed runs")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    average(args.runs, args.out)


if __name__ == "__main__":
    main()
