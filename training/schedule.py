"""Learning-rate schedules over minutes of compute, so that a run fits any machine, busy or idle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


class Schedule(Protocol):
    """What a run needs to know about its time."""

    @property
    def end(self) -> float:
        """Minutes after which the run is over."""

    def rate(self, minutes: float) -> float:
        """Multiplies the peak learning rate."""

    def share(self, minutes: float) -> float:
        """Progress in [0, 1], which the loss's own schedules follow."""


@dataclass(frozen=True)
class Cosine:
    """Warm-up, then a cosine to zero at ``end``: for runs of known length."""

    end: float
    warmup: float = 0.01
    """Share of the run."""

    def rate(self, minutes: float) -> float:
        share = self.share(minutes)
        return min(1.0, share / self.warmup) * (0.5 + 0.5 * math.cos(math.pi * share)) + 1e-3

    def share(self, minutes: float) -> float:
        return minutes / self.end


@dataclass(frozen=True)
class Constant:
    """Warm-up, then a constant rate, to be prolonged for days; :class:`Anneal` ends a copy."""

    end: float
    settle: float = 40.0
    """Minutes over which the loss's own schedules run."""
    warmup: float = 1.0
    """Minutes."""

    def rate(self, minutes: float) -> float:
        return min(1.0, minutes / self.warmup) + 1e-3

    def share(self, minutes: float) -> float:
        return min(1.0, minutes / self.settle)


@dataclass(frozen=True)
class Anneal:
    """Constant until ``start``, then to zero at ``end``, 1 - sqrt (Haegele 2024)."""

    start: float
    end: float

    def rate(self, minutes: float) -> float:
        if minutes < self.start:
            return Constant(self.start).rate(minutes)
        return 1 - math.sqrt(max(0.0, minutes - self.start) / (self.end - self.start)) + 1e-3

    def share(self, minutes: float) -> float:
        return 1.0
