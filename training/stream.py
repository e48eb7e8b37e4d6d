"""Crops of pictures, drawn ahead of time in other processes, so that a GPU need not wait."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

Draw = Callable[[int], Tensor]
"""So many crops (count, 3, S, S) in [-1, 1]."""

CHUNK = 8
"""Crops that one process draws at a time."""
MOST_WORKERS = 1000
"""Between the seeds of two streams."""


class _Stream(IterableDataset[Tensor]):
    """Chunks without end; every worker process has its own seed."""

    def __init__(self, sampler: Callable[[int], Draw], seed: int) -> None:
        self.sampler = sampler
        self.seed = seed

    def __iter__(self) -> Iterator[Tensor]:
        worker = get_worker_info()
        draw = self.sampler(MOST_WORKERS * self.seed + (worker.id if worker else 0))
        while True:
            yield draw(CHUNK)


def _apart(_: int) -> None:
    """Ctrl-C and ``timeout`` signal a group of processes. The run ends its workers itself, when its
    last step is done.
    """
    os.setpgrp()


def add_workers(parser: argparse.ArgumentParser) -> None:
    """The option for the last argument of :func:`stream`."""
    parser.add_argument(
        "--workers", type=int, default=0, help="processes that draw crops (6 with a GPU)"
    )


def stream(sampler: Callable[[int], Draw], seed: int, workers: int) -> Draw:
    """Draws in this process, or ahead of time in ``workers`` others. ``sampler``: from a seed, a
    function that draws.
    """
    chunks = iter(
        DataLoader(
            _Stream(sampler, seed),
            batch_size=None,
            num_workers=workers,
            worker_init_fn=_apart,
        )
    )
    left: list[Tensor] = []

    def draw(count: int) -> Tensor:
        while sum(map(len, left)) < count:
            left.append(next(chunks))
        drawn = torch.cat(left)
        left[:] = [drawn[count:]]
        return drawn[:count]

    return draw
