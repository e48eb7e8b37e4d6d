"""Dream-7B's spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aps_core.priors.base import TextModels
from aps_core.priors.published_text import REWARD, PublishedTextPrior

if TYPE_CHECKING:
    import torch


class Dream7B(PublishedTextPrior):
    """Dream-7B Instruct (Dream-org/Dream-v0-Instruct-7B), the paper's language diffusion model,
    guided by Skywork-Reward-V2-Qwen3-0.6B.
    """

    type: Literal["dream_7b"] = "dream_7b"
    weights: ClassVar[tuple[str, ...]] = ("dream-7b-instruct", REWARD)
    # Where the paper is silent, the authors' later code (docs/text-guidance.md).
    recommended: ClassVar[dict[str, Any]] = {
        "top_k": None,
        "confidence": "initial",
        "end_last": True,
    }

    def load(self, device: torch.device) -> TextModels:
        """Loads Dream and the reward model."""
        from aps_core.priors.dream.network import load_dream

        return self.load_with(load_dream, device)
