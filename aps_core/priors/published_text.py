"""Base class of the published text priors: training length, and the published reward model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

from aps_core.priors.base import TextModels, TextPriorSpec
from aps_core.runtime.precision import fast_dtype
from aps_core.text.rewards import RewardSpec, SequenceClassifierReward

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from aps_core.text.masked_lm import MaskedLM
    from aps_core.text.rewards.network import Kind


REWARD = "skywork-reward-v2-qwen3-0.6b"


class PublishedTextPrior(TextPriorSpec):
    """A published masked language model, guided by a published reward model of Qwen3's size
    0.6B. Other rewards than the classifier read Qwen3-0.6B itself.
    """

    native_length: ClassVar[int] = 2048
    reward: ClassVar[RewardSpec] = SequenceClassifierReward()
    reward_models: ClassVar[Mapping[Kind, str]] = {
        "classifier": REWARD,
        "language_model": "qwen3-0.6b",
    }

    def load_with(
        self, load: Callable[[Path, torch.device, torch.dtype], MaskedLM], device: torch.device
    ) -> TextModels:
        """Loads prior and reward model from their checkpoint folders; ``load`` reads the prior."""
        from aps_core.text.rewards.loading import load_reward

        folders = self.folders()
        dtype = fast_dtype(device)
        prior = load(folders[0], device, dtype)
        return TextModels(prior, load_reward(folders[1], prior, device, dtype))
