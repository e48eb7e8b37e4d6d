"""Base class of the published text priors: training length, and Qwen3-0.6B as reward model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from aps_core.priors.base import TextModels, TextPriorSpec
from aps_core.priors.embedded.image import fast_dtype
from aps_core.text.rewards import RewardSpec, YesNoReward

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from aps_core.text.masked_lm import MaskedLM


class PublishedTextPrior(TextPriorSpec):
    """A published masked language model, guided by Qwen3-0.6B."""

    native_length: ClassVar[int] = 2048
    reward: ClassVar[RewardSpec] = YesNoReward()

    def load_with(
        self, load: Callable[[Path, torch.device, torch.dtype], MaskedLM], device: torch.device
    ) -> TextModels:
        """Loads prior and reward model from their checkpoint folders; ``load`` reads the prior."""
        from aps_core.text.rewards.language_model import load_reward

        folders = self.folders()
        dtype = fast_dtype(device)
        prior = load(folders[0], device, dtype)
        return TextModels(
            prior,
            load_reward(folders[1], prior.tokenizer, prior.vocab_size, prior.eos_id, device, dtype),
        )
