"""Pace of an attempt: the time it has left, and how often it reports inside a reverse step."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from aps_core.types import InnerInfo

PULSE_SECONDS = 0.5
"""Shortest interval between reports inside reverse steps."""
PREVIEW_SECONDS = 1.0
"""Shortest interval between previews inside reverse steps."""
PULSES = 500
"""Long jobs report less often, so that the history of events keeps all of their steps: about this
many times, more if they exceed their estimate.
"""
TRUST = 0.4
"""Share of the job at which its own pace counts as much as the estimate made before it started. The
first report comes late for its share: reading the upload and the first estimate take time, too.
"""


@dataclass
class Pace:
    """Predicts the time left from the work done so far and from the job's estimate."""

    estimate: float
    """Predicted seconds of the whole job; 0 if unknown."""
    started: float = field(default_factory=time.monotonic)
    """Start of sampling on the monotonic clock, in seconds."""
    resumed: float | None = None
    """Share of the job that was done before this attempt; set by the first report."""
    pulse_at: float = 0.0
    """Time of the next report inside a step."""
    preview_at: float = 0.0
    """Time of the next preview inside a step."""

    def seconds_left(self, step: int, total: int, share: float = 1.0) -> float:
        """Predicted seconds until the last step ends.

        Args:
            step: current reverse step, from 1.
            total: reverse steps of the job.
            share: finished share of this step, in (0, 1].
        """
        if self.resumed is None:
            self.resumed = (step - 1) / total
        done = (step - 1 + share) / total
        trust = TRUST if self.estimate else 0.0
        elapsed = time.monotonic() - self.started
        whole = (elapsed + trust * self.estimate) / (done - self.resumed + trust)
        return round((1 - done) * whole, 1)

    def pulse_is_due(self) -> bool:
        """Whether to report inside the step; if so, the next report is scheduled."""
        now = time.monotonic()
        if now < self.pulse_at:
            return False
        longest = max(self.estimate, now - self.started)
        self.pulse_at = now + max(PULSE_SECONDS, longest / PULSES)
        return True

    def preview_is_due(self) -> bool:
        """Whether to make a preview inside the step; if so, the next one is scheduled."""
        now = time.monotonic()
        if now < self.preview_at:
            return False
        self.preview_at = now + PREVIEW_SECONDS
        return True

    def inner_event(self, info: InnerInfo) -> dict[str, Any]:
        """JSON payload of a report inside a step."""
        return {
            "step": info.step,
            "total": info.total,
            "inner_step": info.iteration,
            "inner_steps": info.inner_steps,
            "loss": float(f"{info.loss:.4g}") if math.isfinite(info.loss) else None,
            "seconds_left": self.seconds_left(
                info.step, info.total, info.iteration / info.inner_steps
            ),
        }
