"""Random numbers, and blur kernels (K, K) of sum 1, K = 25 pixels, from a generator."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

REACH = 12
"""Of a kernel to each side, in pixels."""
FAINT = 1e-3
"""Share of the largest weight below which weights are dropped."""


def integer(generator: Generator, end: int) -> int:
    """Uniform, below ``end``."""
    return int(torch.randint(end, (), generator=generator))


def number(generator: Generator, low: float, high: float) -> float:
    """Uniform."""
    return low + (high - low) * float(torch.rand((), generator=generator))


def log_number(generator: Generator, low: float, high: float) -> float:
    """Of uniform logarithm."""
    return math.exp(number(generator, math.log(low), math.log(high)))


def evenly(generator: Generator, count: int) -> list[float]:
    """Uniform numbers below 1 in random order, one in each of ``count`` equal parts: the share of
    those below any number hardly varies.
    """
    places = torch.randperm(count, generator=generator) + number(generator, 0, 1)
    return [float(place) for place in places / count]


def point() -> Tensor:
    """No blur."""
    kernel_KK = torch.zeros(2 * REACH + 1, 2 * REACH + 1)
    kernel_KK[REACH, REACH] = 1
    return kernel_KK


def narrow(generator: Generator) -> Tensor:
    """Before a reduction, which blurs by itself."""
    return point() if number(generator, 0, 1) < 0.7 else _gaussian(generator, 0.3, 1.0)


def blur(generator: Generator, kind: float) -> Tensor:
    """A Gaussian, a disk, a straight or bent movement, or none; ``kind`` is uniform below 1."""
    if kind < 0.15:
        return point()
    if kind < 0.45:
        return _gaussian(generator, 0.4, 3.5)
    return _disk(generator) if kind < 0.55 else _movement(generator)


def _gaussian(generator: Generator, low: float, high: float) -> Tensor:
    wide = log_number(generator, low, high)
    across_width, turn = wide * number(generator, 0.4, 1), number(generator, 0, math.pi)
    axis = torch.arange(-REACH, REACH + 1.0)
    along = math.cos(turn) * axis + math.sin(turn) * axis[:, None]
    across = math.cos(turn) * axis[:, None] - math.sin(turn) * axis
    return _trimmed((-(along / wide).square() / 2 - (across / across_width).square() / 2).exp())


def _disk(generator: Generator) -> Tensor:
    axis = torch.arange(-REACH, REACH + 1.0)
    distance = (axis.square() + axis.square()[:, None]).sqrt()
    return _trimmed((number(generator, 1, 5) + 0.5 - distance).clamp(0, 1))


def _movement(generator: Generator) -> Tensor:
    """A path of even speed, straight or evenly bent."""
    length, turn = number(generator, 3, 2 * REACH - 1), number(generator, 0, math.pi)
    bend = number(generator, -2, 2) if number(generator, 0, 1) < 0.5 else 0.0
    times = torch.linspace(-0.5, 0.5, 200)
    angle = turn + bend * times
    path = torch.stack([angle.cos(), angle.sin()]).cumsum(1) * length / 200
    path = path - path.mean(1, keepdim=True) + REACH
    kernel_KK = torch.zeros(2 * REACH + 1, 2 * REACH + 1)
    corner = path.floor()
    for rows in (0, 1):
        for columns in (0, 1):
            near = corner + torch.tensor([[rows], [columns]])
            weight = (1 - (path - near).abs()).prod(0)
            y, x = near.long().clamp(0, 2 * REACH)
            kernel_KK.index_put_((y, x), weight, accumulate=True)
    return _trimmed(kernel_KK)


def _trimmed(kernel_KK: Tensor) -> Tensor:
    kept_KK = kernel_KK.where(kernel_KK > FAINT * kernel_KK.amax(), 0.0)
    return kept_KK / kept_KK.sum()
