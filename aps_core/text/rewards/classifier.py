"""A sequence classifier as a reward: one number at the end of the chat, as reward models are
published (Skywork-Reward-V2).

Shapes: B rows, L answer tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from tokenizers import Tokenizer
from torch import Tensor

from aps_core.errors import InvalidSpec
from aps_core.text.chat import Chat
from aps_core.text.rewards.alignment import Alignment, SoftAnswer
from aps_core.text.rewards.chat_template import ChatTemplate
from aps_core.text.rewards.network import PREFIXES, Kind, RewardNetwork


class ClassifierReward(RewardNetwork):
    """A transformers ``...ForSequenceClassification`` network and its chat template."""

    kind: ClassVar[Kind] = "classifier"

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        alignment: Alignment,
        template: ChatTemplate,
        *,
        reuse: bool = True,
    ) -> None:
        super().__init__(model, tokenizer, alignment, reuse=reuse)
        self.template = template
        self._around: dict[Chat, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def score(self, chat: Chat, answer: SoftAnswer, label: int) -> Tensor:
        """Output ``label`` (B,), float32, after the answer in the chat template. Tokens after the
        answer's end token are not attended to; positions count them, as in the published code.
        """
        if chat not in self._around:
            before, after = (self.ids(text) for text in self.template.around(chat))
            kept = list(self._around.items())[1 - PREFIXES :]
            self._around = {**dict(kept), chat: (before, after)}
        return self.between(*self._around[chat], answer, label)

    def between(
        self, before: tuple[int, ...], after: tuple[int, ...], answer: SoftAnswer, label: int
    ) -> Tensor:
        """Output ``label`` (B,) for an answer between two fixed texts, given as ids."""
        hidden_BTD = self.read(before, self.embedded(answer), answer.seen_BL(), after)
        return self._output(hidden_BTD[:, -1], label)

    @torch.no_grad()
    def score_texts(self, chat: Chat, texts: Sequence[str], label: int) -> Tensor:
        """Output ``label`` (B,) of finished answers, tokenised by the reward model itself."""
        scores = []
        for text in texts:
            ids = self.ids(self.template.render(chat, text))
            x_1LD = self._embed(ids[1:])
            seen_1L = x_1LD.new_ones(x_1LD.shape[:2], dtype=torch.bool)
            scores.append(self._output(self.read(ids[:1], x_1LD, seen_1L)[:, -1], label))
        return torch.cat(scores)

    def _output(self, last_BD: Tensor, label: int) -> Tensor:
        outputs_BC: Tensor = self.model.score(last_BD).float()
        if label >= outputs_BC.shape[1]:
            raise InvalidSpec(
                f"The reward model has {outputs_BC.shape[1]} outputs; label {label} does not exist."
            )
        return outputs_BC[:, label]
