"""Computational cost of blind estimates. Needs no torch, so that jobs can be priced without it."""

from __future__ import annotations

from dataclasses import dataclass

SIDE, MARGIN = 96, 8
"""Side of the examined part in pixels, and the border that is not compared."""
STEPS, INNER_STEPS = 2, 4
"""Reverse steps of an E step, and Adam steps in each."""
KERNEL_SEARCH = 1600
"""Cost of the search for a kernel of any shape, in decoder evaluations of such a part."""
PATCH = 192
"""Side in pixels of the part examined for a kernel of any shape."""


@dataclass(frozen=True)
class Effort:
    """Size of a blind estimate."""

    chains: int
    iterations: int

    @property
    def decodes(self) -> int:
        """Decoder evaluations of a picture of ``SIDE`` x ``SIDE`` pixels."""
        return self.chains * self.iterations * STEPS * INNER_STEPS
