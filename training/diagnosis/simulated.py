"""Features and targets of simulated degradations, cached for repeated training."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aps_core.identify.diagnosis.blur import FAMILIES
from training.diagnosis import pictures
from training.diagnosis.simulate import degraded, drawn

Read = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Features of a picture (H, W, 3) in [-1, 1]."""
SIDES = (96, 128, 160, 192, 256)


def simulated(
    draws: list[pictures.Draw], count: int, seed: int, read: Read
) -> tuple[Tensor, Tensor]:
    """Features (count, F), and targets (count, 4): family, logarithm of the size, angle in radians,
    whether it is a document. Draws alternate; the second draws documents.
    """
    rng, vectors, targets = np.random.default_rng(seed), [], []
    for number in range(count):
        document = number % len(draws)
        truth = drawn(rng, bool(document))
        y = degraded(draws[document](rng, int(rng.choice(SIDES))), truth, rng)
        vectors.append(read(y))
        family = FAMILIES.index(truth.family)
        targets.append([family, np.log(truth.size), np.radians(truth.angle), document])
    return torch.tensor(np.array(vectors)).float(), torch.tensor(np.array(targets)).float()


class Simulations(NamedTuple):
    """Features (N, F) and targets (N, 4)."""

    x_NF: Tensor
    target_N4: Tensor
    withheld_MF: Tensor
    withheld_M4: Tensor


def cached(
    path: Path, draws: list[pictures.Draw], count: int, seed: int, read: Read
) -> tuple[Tensor, Tensor]:
    """:func:`simulated`, cached in a file."""
    if not path.exists():
        x, target = simulated(draws, count, seed, read)
        np.savez(path, x=x.numpy(), target=target.numpy())
    stored = np.load(path)
    return torch.tensor(stored["x"]), torch.tensor(stored["target"])


def simulations(asked: argparse.Namespace, name: str, read: Read) -> Simulations:
    """Features and targets of training pictures and of withheld ones."""
    asked.work.mkdir(parents=True, exist_ok=True)
    each = asked.count // asked.shards

    def shard(number: int) -> tuple[Tensor, Tensor]:
        draws = [pictures.photographs(asked.corpus, False), pictures.documents(asked.tiles, number)]
        return cached(asked.work / f"{name}-{number}.npz", draws, each, number, read)

    shards = [shard(number) for number in range(asked.shards)]
    draws = [
        pictures.photographs(asked.corpus, True),
        pictures.withheld_documents(asked.tiles, 1),
    ]
    withheld = cached(asked.work / f"{name}-withheld.npz", draws, each, 10_000, read)
    return Simulations(
        torch.cat([x for x, _ in shards]), torch.cat([target for _, target in shards]), *withheld
    )


def arguments(description: str | None, count: int) -> argparse.ArgumentParser:
    """Parser with the options of both trainings."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--tiles", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/diagnosis"))
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--shards", type=int, default=20)
    return parser


def stored(net: nn.Sequential) -> dict[str, NDArray[np.floating[Any]]]:
    linear = [layer for layer in net if isinstance(layer, nn.Linear)]
    return {
        f"{name}{number}": getattr(layer, name).detach().numpy().astype(np.float16)
        for number, layer in enumerate(linear, 1)
        for name in ("weight", "bias")
    }
