"""What a prior is, before any weights are loaded: a spec that names its folder and loads it."""

from __future__ import annotations

import builtins
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from aps_core.checkpoints import checkpoint_cache
from aps_core.checkpoints.files import folder_identity, stored_numbers
from aps_core.priors.prompts import check_length
from aps_core.registry import Spec
from aps_core.runtime import memory
from aps_core.samplers import SamplerSpec
from aps_core.samplers.aps import APSConfig
from aps_core.text.rewards import RewardSpec

if TYPE_CHECKING:
    import torch

    from aps_core.text.masked_lm import MaskedLM
    from aps_core.text.rewards.language_model import RewardModel
    from aps_core.types import Prior


class PriorSpec(Spec, family=True):
    """A pretrained discrete diffusion prior with its tokenizer."""

    recommended: ClassVar[dict[str, Any]] = {}
    """Sampler settings used where a job leaves them out."""
    weights: ClassVar[tuple[str, ...]] = ()
    """Checkpoints of the manifest it loads; none where its weights ship with the package."""

    def folders(self) -> tuple[Path, ...]:
        """Where its weights lie.

        Raises:
            WeightsMissing, WeightsInvalid: they are not here.
        """
        return tuple(checkpoint_cache.path(name) for name in self.weights)

    def identity(self) -> str:
        """Hash that changes when the weights do; see
        :func:`aps_core.checkpoints.files.folder_identity`.
        """
        return "+".join(folder_identity(folder) for folder in self.folders())

    def number_bytes(self, device: str) -> int:
        """Bytes of one weight on a device: bfloat16 on a GPU, at most float32 on a CPU."""
        return 4 if device == "cpu" else 2

    def weights_bytes(self, device: str) -> int:
        """Memory of the loaded weights, from the headers of their files."""
        return sum(stored_numbers(folder) for folder in self.folders()) * self.number_bytes(device)

    @abstractmethod
    def token_bytes(self, device: str) -> int:
        """Memory a job takes for every token of its result, beside the weights; see
        :mod:`aps_core.runtime.memory`.
        """

    @property
    @abstractmethod
    def native_tokens(self) -> int:
        """Tokens of a job of the size it was trained at."""

    @classmethod
    def missing(cls) -> str | None:
        """Why this prior cannot be loaded on this machine, and what to do; None when it can."""
        return checkpoint_cache.missing(cls.weights)


class ImagePriorSpec(PriorSpec):
    """A prior over pictures; ``recommended`` holds fields of
    :class:`aps_core.samplers.aps.APSConfig`.
    """

    tuned: ClassVar[dict[str, dict[str, Any]]] = {}
    """Settings of the samplers other than ``aps``, by type, where they were tuned on this prior."""
    recommended_loss: ClassVar[dict[str, dict[str, Any]]] = {}
    """Fields of the losses, by type, used where a job leaves them out."""
    native_size: ClassVar[tuple[int, int]]
    """Height and width in pixels the prior was trained at; larger pictures are seen through
    overlapping windows.
    """
    stride: ClassVar[int]
    """Pixels per token along one axis."""

    def check_prompt(self, prompt: str) -> None:
        """Checks a prompt against the length the prior reads, where its tokenizer is on this
        machine; needs no torch.

        Raises:
            InvalidSpec: the prompt is too long.
        """

    @classmethod
    def recommended_for(
        cls, sampler: builtins.type[SamplerSpec], changes: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Fields of ``sampler`` recommended for this prior: the work of ``recommended`` with
        ``changes``, and what was tuned.
        """
        name = sampler.model_fields["type"].default
        base = APSConfig(**{**cls.recommended, **(changes or {})})
        return sampler.like(base, cls.tuned.get(name)).model_dump(exclude={"type"})

    @property
    def native_tokens(self) -> int:
        """See :attr:`PriorSpec.native_tokens`."""
        height, width = self.native_size
        return height * width // self.stride**2

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
    """A prior over text with a reward model of the same token family; ``recommended`` holds fields
    of :class:`aps_core.text.config.TextConfig`.
    """

    native_length: ClassVar[int]
    """Tokens of prompt and answer together the prior was trained at."""
    reward: ClassVar[RewardSpec]
    """What is read from the reward model where a job does not say."""

    def check_prompt(self, prompt: str) -> None:
        """Checks that a prompt leaves room for an answer, where the prior's ``tokenizer.json`` is
        on this machine; needs no torch.

        Raises:
            InvalidSpec: the prompt alone is longer than all the prior was trained on.
        """
        if self.missing() is None and (self.folders()[0] / "tokenizer.json").is_file():
            check_length(self.folders()[0], prompt, self.native_length)

    @property
    def native_tokens(self) -> int:
        """See :attr:`PriorSpec.native_tokens`."""
        return self.native_length

    def token_bytes(self, device: str) -> int:
        """See :meth:`PriorSpec.token_bytes`: the prior's and the reward model's folders, in this
        order.
        """
        prior, *rewards = (memory.language_model(folder) for folder in self.folders())
        return memory.text_token_bytes(
            prior, rewards, self.number_bytes(device), self.native_length
        )

    @abstractmethod
    def load(self, device: torch.device) -> TextModels:
        """Reads the weights onto ``device``.

        Raises:
            WeightsMissing, WeightsInvalid: a file is absent or damaged.
        """
