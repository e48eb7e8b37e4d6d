"""How much a blind estimate computes. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

SIDE, MARGIN = 96, 8
"""Side of the examined part in pixels, and the border that is not compared."""
STEPS, INNER_STEPS = 2, 4
"""Reverse steps of an E step, and Adam steps in each."""
SCALES = (2 * 2**0.5, 2.0, 2**0.5, 1.0)
"""Factors by which the examined picture is reduced while a free kernel is estimated."""


@dataclass(frozen=True)
class Effort:
    """Size of a blind estimate."""

    chains: int
    iterations: int
    free: bool = False
    """Whether a kernel of any shape is estimated."""

    @property
    def draws(self) -> int:
        """Number of E steps; the last two compare a free kernel with a simpler blur."""
        return sum(map(self.at, SCALES)) + 2 if self.free else self.iterations

    def at(self, scale: float) -> int:
        """Iterations for a free kernel at a scale: one less than at the full resolution."""
        return self.iterations - (scale > 1)

    @property
    def decodes(self) -> int:
        """Decoder evaluations of a picture of ``SIDE`` x ``SIDE`` pixels."""
        return self.chains * self.draws * STEPS * INNER_STEPS
