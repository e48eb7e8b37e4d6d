"""What a prior is, before any weights are loaded: a spec that names its folder and loads it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from aps_core.registry import Spec

if TYPE_CHECKING:
    import torch

    from aps_core.types import Prior


class PriorSpec(Spec, family=True):
    """A pretrained discrete diffusion prior with its tokenizer."""

    native_size: ClassVar[tuple[int, int]]
    """Height and width in pixels the prior was trained at; larger pictures are seen through overlapping windows."""
    stride: ClassVar[int]
    """Pixels per token along one axis."""
    recommended: ClassVar[dict[str, Any]] = {}
    """Sampler settings (fields of :class:`aps_core.config.APSConfig`) used where a job leaves them out."""

    @abstractmethod
    def identity(self) -> str:
        """Hash that changes when the weights do."""

    @abstractmethod
    def load(self, device: torch.device) -> Prior:
        """Reads the weights onto ``device``.

        Raises:
            WeightsMissing, WeightsInvalid: a file is absent or damaged.
        """
