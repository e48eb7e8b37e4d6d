"""What a prior is, before any weights are loaded: a spec that names its folder and loads it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from aps_core import installed
from aps_core.errors import WeightsInvalid, WeightsMissing
from aps_core.registry import Spec
from aps_core.rewards import RewardSpec
from aps_core.weights import folder_identity

if TYPE_CHECKING:
    import torch

    from aps_core.priors.masked_lm import MaskedLM
    from aps_core.rewards.language_model import RewardModel
    from aps_core.types import Prior


class PriorSpec(Spec, family=True):
    """A pretrained discrete diffusion prior with its tokenizer."""

    recommended: ClassVar[dict[str, Any]] = {}
    """Sampler settings used where a job leaves them out."""
    weights: ClassVar[tuple[str, ...]] = ()
    """Checkpoints of the manifest it loads; none where its weights ship with the package."""

    def identity(self) -> str:
        """Hash that changes when the weights do; see :func:`aps_core.weights.folder_identity`.

        Raises:
            WeightsMissing, WeightsInvalid: they are not here.
        """
        return "+".join(folder_identity(installed.path(name)) for name in self.weights)

    @classmethod
    def missing(cls) -> str | None:
        """Why this prior cannot be loaded on this machine, and what to do; None when it can."""
        try:
            for name in cls.weights:
                installed.path(name)
        except (WeightsMissing, WeightsInvalid) as error:
            return str(error)
        return None


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
