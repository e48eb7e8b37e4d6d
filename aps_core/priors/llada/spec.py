"""LLaDA-8B's spec."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aps_core.priors.base import TextModels
from aps_core.priors.published_text import REWARD, PublishedTextPrior
from aps_core.text.chat import LLaDAIds, TextIds

if TYPE_CHECKING:
    import torch


class LLaDA8B(PublishedTextPrior):
    """LLaDA-8B Instruct (GSAI-ML/LLaDA-8B-Instruct), the paper's other baseline, guided by
    Skywork-Reward-V2-Qwen3-0.6B where their tokens agree.
    """

    type: Literal["llada_8b"] = "llada_8b"
    weights: ClassVar[tuple[str, ...]] = ("llada-8b-instruct", REWARD)
    ids: ClassVar[builtins.type[TextIds]] = LLaDAIds
    # the released code keeps the most probable tokens, without noise
    recommended: ClassVar[dict[str, Any]] = {
        "alg": "maskgit_plus",
        "temperature": 0.0,
        "top_p": None,
        "top_k": None,
    }

    def load(self, device: torch.device) -> TextModels:
        """Loads LLaDA and the reward model."""
        from aps_core.priors.llada.network import load_llada

        return self.load_with(load_llada, device)
