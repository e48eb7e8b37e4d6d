"""The embedded text prior: Dream at a small size with a small reward model, in the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aps_core.checkpoints.files import EMBEDDED
from aps_core.priors.base import TextModels, TextPriorSpec
from aps_core.runtime.precision import fast_dtype
from aps_core.text.rewards import RewardSpec, SequenceClassifierReward

if TYPE_CHECKING:
    import torch

    from aps_core.text.rewards.network import Kind

FOLDER = EMBEDDED / "text"


class EmbeddedTextPrior(TextPriorSpec):
    """Small Dream-style language model and reward model, trained on short texts in simple English;
    runs on a laptop CPU.
    """

    type: Literal["embedded_text"] = "embedded_text"
    native_length: ClassVar[int] = 80
    # One step per token: tokens decided together in one step can contradict each other. At Dream's
    # temperature of 0.2, several answers to a prompt are nearly equal (docs/text-guidance.md).
    recommended: ClassVar[dict[str, Any]] = {
        "max_new_tokens": 48,
        "steps": 48,
        "alg": "entropy",
        "confidence": "initial",
        "temperature": 0.5,
        "learning_rate": 0.5,
    }
    reward: ClassVar[RewardSpec] = SequenceClassifierReward()
    other_kinds: ClassVar[tuple[Kind, ...]] = ("language_model",)

    def folders(self) -> tuple[Path, ...]:
        """Language model and reward model, both in the package."""
        return FOLDER / "prior", FOLDER / "reward"

    def load(self, device: torch.device) -> TextModels:
        """Loads language model and reward model from the package."""
        from aps_core.priors.dream.network import load_dream
        from aps_core.text.rewards.loading import load_reward

        dtype = fast_dtype(device)
        prior = load_dream(FOLDER / "prior", device, dtype)
        classifier, language_model = (
            load_reward(FOLDER / "reward", prior, device, dtype, kind)
            for kind in (self.reward.kind, *self.other_kinds)
        )
        return TextModels(prior, classifier, (language_model,))
