"""Interface of a prior before its weights are loaded: a spec that locates and loads them."""

from __future__ import annotations

import builtins
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from aps_core.checkpoints import checkpoint_cache
from aps_core.checkpoints.metadata import folder_identity, read_config, stored_numbers
from aps_core.errors import InvalidSpec
from aps_core.priors.prompts import check_length, token_count
from aps_core.registry import Spec
from aps_core.runtime import memory
from aps_core.samplers import SamplerSpec
from aps_core.samplers.aps import APSConfig
from aps_core.samplers.base import Denoiser
from aps_core.text.chat import Chat, TextIds, chat_of, transcript
from aps_core.text.rewards import RewardSpec

if TYPE_CHECKING:
    import torch

    from aps_core.text.masked_lm import MaskedLM
    from aps_core.text.rewards.network import Kind, RewardNetwork
    from aps_core.types import Prior


Preset = Literal["fast", "balanced", "best"]
"""Amount of work of a picture task."""
PRESETS: tuple[Preset, ...] = get_args(Preset)
Content = Literal["photographs", "documents"]
"""Pictures to specialise in; ``documents`` are pages, screens, diagrams and icons."""


class PriorSpec(Spec, family=True):
    """A pretrained discrete diffusion prior with its tokenizer."""

    recommended: ClassVar[dict[str, Any]] = {}
    """Sampler settings used for fields that a job leaves out."""
    weights: ClassVar[tuple[str, ...]] = ()
    """Checkpoints of the manifest it loads; empty if its weights ship with the package."""
    better_with: ClassVar[tuple[str, ...]] = ()
    """Optional checkpoints, used by its recommended settings if installed."""

    def folders(self) -> tuple[Path, ...]:
        """Folders of its weights.

        Raises:
            WeightsMissing, WeightsInvalid: they are absent or damaged.
        """
        return tuple(checkpoint_cache.path(name) for name in self.weights)

    def identity(self) -> str:
        """Hash that changes with the weights; see
        :func:`aps_core.checkpoints.metadata.folder_identity`.
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
        """Memory of a job per token of its result, without weights; see
        :mod:`aps_core.runtime.memory`.
        """

    @property
    @abstractmethod
    def native_tokens(self) -> int:
        """Tokens of a job of the prior's training size."""

    @classmethod
    def missing(cls) -> str | None:
        """Why this prior cannot be loaded on this machine and how to fix it; None if it can be
        loaded.
        """
        return checkpoint_cache.missing(cls.weights)


class ImagePriorSpec(PriorSpec):
    """A prior over pictures; ``recommended`` holds fields of
    :class:`aps_core.samplers.aps.APSConfig`.
    """

    content: ClassVar[Content | None] = None
    """What it is specialised in; None: it knows pictures in general."""
    operators: ClassVar[frozenset[str] | None] = None
    """Types of operators behind which it is chosen for such pictures, if it is specialised; None:
    any.
    """
    denoises: ClassVar[Denoiser | None] = None
    """What the loaded prior denoises, if it is a denoiser. One of noise knows no tokens."""
    restoring_sampler: ClassVar[str] = "aps"
    """Sampler of a restoration that names none."""
    tuned: ClassVar[dict[str, dict[str, Any]]] = {}
    """Settings tuned on this prior for samplers other than ``aps``, by sampler type."""
    presets: ClassVar[dict[Preset, dict[str, float]]] = {
        "fast": {"steps": 0.5, "inner_steps": 0.5},
        "balanced": {},
        "best": {"steps": 1.5, "inner_steps": 2},
    }
    """By preset: factors on the recommended fields of :class:`aps_core.samplers.aps.APSConfig`.
    Other samplers derive their settings from these.
    """
    recommended_loss: ClassVar[dict[str, dict[str, Any]]] = {}
    """Loss settings used for fields that a job leaves out, by loss type."""
    passes_per_step: ClassVar[int] = 2
    """Cost of a reverse step's prior in inner steps."""
    attention_share: ClassVar[float] = 0.0
    """Share of the tokenizer's attention in the time of an inner step at the native size. This part
    grows with the square of the number of tokens.
    """
    native_size: ClassVar[tuple[int, int]]
    """Height and width in pixels the prior was trained at. Other sizes are evaluated in overlapping
    windows, or as one sequence if the prior supports it.
    """
    stride: ClassVar[int]
    """Pixels per token along one axis."""

    def check_prompt(self, prompt: str) -> None:
        """Checks the prompt's length, if the prior's tokenizer is installed. Needs no torch.

        Raises:
            InvalidSpec: the prompt is too long.
        """

    @classmethod
    def recommended_for(
        cls,
        sampler: builtins.type[SamplerSpec],
        changes: Mapping[str, Any] | None = None,
        preset: Preset = "balanced",
    ) -> dict[str, Any]:
        """Fields of ``sampler`` recommended for this prior: tuned settings, and the amount of work
        in ``recommended`` with ``changes``, scaled by ``preset``.
        """
        name = sampler.model_fields["type"].default
        usual = APSConfig(**{**cls.recommended, **(changes or {})})
        base = usual.model_copy(
            update={
                field: max(1, round(getattr(usual, field) * factor))
                for field, factor in cls.presets[preset].items()
            }
        )
        tuned = dict(cls.tuned.get(name, {}))
        for field, factor in cls.presets[preset].items():
            if field in tuned:
                tuned[field] = max(1, round(tuned[field] * factor))
        return sampler.like(base, tuned).model_dump(exclude={"type"})

    def caveats(self, sampler: SamplerSpec) -> list[str]:
        """A note if the sampler works with the prior, but does not suit it."""
        if not self.denoises or sampler.needs_denoiser:
            return []
        return [
            f"The prior '{self.type}' was trained for '{self.restoring_sampler}'; with"
            f" '{sampler.type}' its restorations are much worse."
        ]

    @classmethod
    def samplers(cls) -> list[str]:
        """Types of the samplers that work with this prior."""
        suited = {cls.denoises} if cls.denoises == "noise" else {cls.denoises, None}
        return [n for n in SamplerSpec.family if SamplerSpec.named(n).needs_denoiser in suited]

    @property
    def native_tokens(self) -> int:
        """Tokens of a picture of ``native_size``."""
        height, width = self.native_size
        return height * width // self.stride**2

    @abstractmethod
    def load(self, device: torch.device) -> Prior:
        """Loads the weights onto ``device``.

        Raises:
            WeightsMissing, WeightsInvalid: a file is absent or damaged.
        """


@dataclass(frozen=True)
class TextModels:
    """A text prior and its reward model."""

    prior: MaskedLM
    reward: RewardNetwork
    also: tuple[RewardNetwork, ...] = ()
    """Other kinds of reward that the same checkpoint serves."""


class TextPriorSpec(PriorSpec):
    """A prior over text with a reward model of the same token family; ``recommended`` holds fields
    of :class:`aps_core.text.config.TextConfig`.
    """

    native_length: ClassVar[int]
    """Tokens of prompt and answer together in training."""
    ids: ClassVar[builtins.type[TextIds]] = TextIds
    """Reads the prompt layout from the first folder's ``config.json``."""
    reward: ClassVar[RewardSpec]
    """Reward used if a job does not specify one."""
    reward_models: ClassVar[Mapping[Kind, str]] = {}
    """Checkpoint used for a kind of reward if a job does not name one."""
    other_kinds: ClassVar[tuple[Kind, ...]] = ()
    """Kinds of reward that the prior's own reward model serves besides that of ``reward``."""

    def resolved_reward(self, reward: RewardSpec | None) -> RewardSpec:
        """The reward of a job, with the name of its model unless that ships with the prior.

        Raises:
            InvalidSpec: the prior has no model of the kind that the reward reads.
        """
        chosen = reward or self.reward
        name = chosen.model or self.reward_models.get(chosen.kind)
        if name is None and chosen.kind not in (self.reward.kind, *self.other_kinds):
            raise InvalidSpec(
                f"The reward '{chosen.type}' reads a {chosen.kind.replace('_', ' ')}, which the"
                f" prior '{self.type}' does not bring; name a checkpoint in reward.model."
            )
        return chosen.model_copy(update={"model": name})

    def check_prompt(self, prompt: str | Chat) -> None:
        """Checks that the prompt leaves room for an answer, if the prior's ``tokenizer.json`` is
        installed. Needs no torch.

        Raises:
            InvalidSpec: the prompt and what the prior reads around it take its whole training
                length.
            WeightsInvalid: a field of ``config.json`` is missing or wrong.
        """
        if self.missing() is not None or not (self.folders()[0] / "tokenizer.json").is_file():
            return
        folder, text = self.folders()[0], transcript(chat_of(prompt))
        rendered = read_config(folder, self.ids).render(prompt)
        around = token_count(folder, rendered) - token_count(folder, text)
        check_length(folder, text, self.native_length - around - 1)  # 1 for the answer

    @property
    def native_tokens(self) -> int:
        """The training length."""
        return self.native_length

    def token_bytes(self, device: str) -> int:
        """Uses the folders of the prior and of the reward model, in this order."""
        prior, *rewards = (memory.language_model(folder) for folder in self.folders())
        return memory.text_token_bytes(
            prior, rewards, self.number_bytes(device), self.native_length
        )

    @abstractmethod
    def load(self, device: torch.device) -> TextModels:
        """Loads the weights of both models onto ``device``.

        Raises:
            WeightsMissing, WeightsInvalid: a file is absent or damaged.
        """
