"""Input of the identification of an unknown degradation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aps_core.imaging.images import Picture
from aps_core.types import InnerHook

if TYPE_CHECKING:
    from aps_core.engines.engine import ImageEngine


@dataclass(frozen=True)
class Search:
    """The upload and the settings of its run."""

    upload: Picture
    engine: ImageEngine | None = None
    """The job's prior; None if it is not registered."""
    sigma: float | None = None
    """Standard deviation of the noise on the [-1, 1] scale; None if it is unknown."""
    seed: int = 0
    on_inner: InnerHook | None = None
    """Called during long work; returning False cancels."""
    part: tuple[int, int] | None = None
    """Width and height of the part of the upload that is restored; None for all of it."""
    working_size: int | None = None
    """Longer side to which the restored picture is reduced; None leaves its size."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of what is restored."""
        return self.part or self.upload.size
