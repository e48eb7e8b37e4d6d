"""Which measurements a prior is trained on, and how they are estimated and fitted: as in its
restorations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from aps_core.priors.base import ImagePriorSpec
from aps_core.samplers.plug_and_play import AREA_WEIGHT, PlugAndPlay


@dataclass(frozen=True)
class Kinds:
    """Which measurements of a prior's pictures are drawn, and how they are fitted."""

    factors: tuple[int, ...] = (1, 1, 1, 1, 2, 4)
    """By which sizes are reduced, equally often."""
    area_weight: float = AREA_WEIGHT
    """Of :class:`~aps_core.samplers.plug_and_play.PlugAndPlay`."""
    clipped_smoothness: float = 12.0
    """The same."""
    filling_steps: int = 60
    """The same, of clipped pictures: how far their values go beyond the limit depends on it."""

    @classmethod
    def of(cls, prior: type[ImagePriorSpec], factors: tuple[int, ...]) -> Self:
        """With the settings that a prior's restorations have."""
        sampler = PlugAndPlay(**prior.recommended_for(PlugAndPlay))
        return cls(
            factors=factors,
            area_weight=sampler.area_weight,
            clipped_smoothness=sampler.clipped_smoothness,
            filling_steps=sampler.filling_steps,
        )

    def counts(self, pictures: int) -> dict[int, int]:
        """About how many of so many pictures are reduced by each factor, at least one."""
        shares = {f: pictures * self.factors.count(f) / len(self.factors) for f in self.factors}
        return {factor: max(1, round(share)) for factor, share in shares.items()}
