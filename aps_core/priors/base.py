"""What a prior is, before any weights are loaded: a spec that names its folder and loads it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from aps_core.registry import Spec
from aps_core.rewards import RewardSpec

if TYPE_CHECKING:
    import torch

    from aps_core.priors.masked_lm import MaskedLM
    from aps_core.rewards.language_model import RewardModel
    from aps_core.types import Prior


class PriorSpec(Spec, family=True):
    """A pretrained discrete diffusion prior with its tokenizer."""

    recommended: ClassVar[dict[str, Any]] = {}
    """Sampler settings used where a job leaves them out."""

    @abstractmethod
    def identity(self) -> str:
        """Hash that changes when the weights do."""


class ImagePriorSpec(PriorSpec):
    """A prior over pictures; ``recommended`` holds fields of :class:`aps_core.config.APSConfig`."""

    native_size: ClassVar[tuple[int, int]]
    """Height and width in pixels the prior was trained at; larger pictures are seen through overlapping windows."""
    stride: ClassVar[int]
    """Pixels per token along one axis."""

    @abstractmethod
    def load(self, device: torch.device) -> Prior:
        """Reads the weights onto ``device``.

        Raises:
            WeightsMissing, WeightsInvalid: a file is absent or damaged.
        """


@dataclass(frozen=True)
class TextModels:
    """A text prior and the reward model that goes with it."""

    prior: MaskedLM
    reward: RewardModel


class TextPriorSpec(PriorSpec):
    """A prior over text with a reward model of the same token family; ``recommended`` holds fields of
    :class:`aps_core.text_config.TextConfig`."""

    native_length: ClassVar[int]
    """Tokens of prompt and answer together the prior was trained at."""
    reward: ClassVar[RewardSpec]
    """What is read from the reward model where a job does not say."""

    @abstractmethod
    def load(self, device: torch.device) -> TextModels:
        """Reads the weights onto ``device``.

        Raises:
            WeightsMissing, WeightsInvalid: a file is absent or damaged.
        """
