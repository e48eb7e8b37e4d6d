"""The embedded text prior: Dream at a small size with a small causal reward model, shipped with the
package.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aps_core.checkpoints.files import EMBEDDED
from aps_core.priors.base import TextModels, TextPriorSpec
from aps_core.text.rewards import LogLikelihoodReward, RewardSpec

if TYPE_CHECKING:
    import torch

FOLDER = EMBEDDED / "text"


class EmbeddedTextPrior(TextPriorSpec):
    """Small Dream-style language model and reward model, trained on dictionaries, novels and game
    stories; runs on a laptop CPU.
    """

    type: Literal["embedded_text"] = "embedded_text"
    native_length: ClassVar[int] = 128
    # In entropy order, a model this small ends its answers immediately, because it is most certain
    # about the end token. In random order every token is sampled only once, so the learning rate
    # must exceed the paper's 0.1 (docs/text-guidance.md).
    recommended: ClassVar[dict[str, Any]] = {
        "max_new_tokens": 32,
        "steps": 32,
        "alg": "origin",
        "learning_rate": 1.0,
    }
    reward: ClassVar[RewardSpec] = LogLikelihoodReward()

    def folders(self) -> tuple[Path, ...]:
        """Language model and reward model, both in the package."""
        return FOLDER / "prior", FOLDER / "reward"

    def load(self, device: torch.device) -> TextModels:
        """Loads language model and reward model from the package."""
        from aps_core.priors.dream.network import load_dream
        from aps_core.priors.embedded.image import fast_dtype
        from aps_core.text.rewards.loading import load_reward

        dtype = fast_dtype(device)
        prior = load_dream(FOLDER / "prior", device, dtype)
        return TextModels(prior, load_reward(FOLDER / "reward", prior, device, dtype))
