"""The published text priors, with Qwen3-0.6B as their reward model: their specs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aps_core.priors.base import TextModels, TextPriorSpec
from aps_core.priors.embedded import fast_dtype
from aps_core.rewards import RewardSpec, YesNoReward

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from aps_core.priors.masked_lm import MaskedLM


class _Published(TextPriorSpec):
    native_length: ClassVar[int] = 2048
    reward: ClassVar[RewardSpec] = YesNoReward()

    def _load(self, load: Callable[[Path, torch.device, torch.dtype], MaskedLM], device: torch.device) -> TextModels:
        from aps_core.rewards.language_model import load_reward

        folders = self.folders()
        dtype = fast_dtype(device)
        prior = load(folders[0], device, dtype)
        return TextModels(prior, load_reward(folders[1], prior.tokenizer, prior.vocab_size, prior.eos_id, device, dtype))


class Dream7B(_Published):
    """Dream-7B Instruct (Dream-org/Dream-v0-Instruct-7B), the paper's language diffusion model, guided by Qwen3-0.6B."""

    type: Literal["dream_7b"] = "dream_7b"
    weights: ClassVar[tuple[str, ...]] = ("dream-7b-instruct", "qwen3-0.6b")

    def load(self, device: torch.device) -> TextModels:
        """See :meth:`TextPriorSpec.load`."""
        from aps_core.priors.dream import load_dream

        return self._load(load_dream, device)


class LLaDA8B(_Published):
    """LLaDA-8B Instruct (GSAI-ML/LLaDA-8B-Instruct), the paper's other baseline, guided by Qwen3-0.6B where their tokens agree."""

    type: Literal["llada_8b"] = "llada_8b"
    weights: ClassVar[tuple[str, ...]] = ("llada-8b-instruct", "qwen3-0.6b")
    # its release keeps the most probable tokens, undisturbed
    recommended: ClassVar[dict[str, Any]] = {"alg": "maskgit_plus", "temperature": 0.0, "top_p": None, "top_k": None}

    def load(self, device: torch.device) -> TextModels:
        """See :meth:`TextPriorSpec.load`."""
        from aps_core.priors.llada import load_llada

        return self._load(load_llada, device)
