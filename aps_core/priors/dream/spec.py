"""Dream-7B's spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from aps_core.priors.base import TextModels
from aps_core.priors.published_text import PublishedTextPrior

if TYPE_CHECKING:
    import torch


class Dream7B(PublishedTextPrior):
    """Dream-7B Instruct (Dream-org/Dream-v0-Instruct-7B), the paper's language diffusion model,
    guided by Qwen3-0.6B.
    """

    type: Literal["dream_7b"] = "dream_7b"
    weights: ClassVar[tuple[str, ...]] = ("dream-7b-instruct", "qwen3-0.6b")

    def load(self, device: torch.device) -> TextModels:
        """Loads Dream and the reward model."""
        from aps_core.priors.dream.network import load_dream

        return self.load_with(load_dream, device)
