"""A causal language model as a reward: the logits of its reply, or the answer's likelihood.

The paper names its reward model, Qwen3-0.6B, and not how a score is computed. These are two ways to
score with a model that was not trained as a reward.

Shapes: B rows, L answer tokens, K = L - 1 of them that predict the next, V the prior's vocabulary,
W the reward model's, D its width.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from aps_core.errors import InvalidSpec
from aps_core.text.rewards.alignment import SoftAnswer
from aps_core.text.rewards.network import Kind, RewardNetwork


class LanguageModelReward(RewardNetwork):
    """A causal language model with its output head."""

    kind: ClassVar[Kind] = "language_model"

    def token(self, text: str) -> int:
        """Id of a text that is a single token.

        Raises:
            InvalidSpec: the text is not exactly one token.
        """
        ids = self.ids(text)
        if len(ids) != 1:
            raise InvalidSpec(f"{text!r} is {len(ids)} tokens of the reward model; it must be one.")
        return ids[0]

    def next_logits(self, before: str, answer: SoftAnswer, after: str) -> Tensor:
        """Logits (B, W), float32, of the token after ``before + answer + after``. The answer is
        truncated at its end token.
        """
        hidden_BTD = self.read(
            self.ids(before),
            self.embedded(answer),
            answer.seen_BL(end=False),
            self.ids(after),
            compact=True,
        )
        logits_BW: Tensor = self.model.lm_head(hidden_BTD[:, -1]).float()
        return logits_BW

    def mean_log_likelihood(self, before: str, answer: SoftAnswer) -> Tensor:
        """Mean of log p(token | before, previous tokens) over the answer's tokens including its
        end, in nats: (B,).

        Raises:
            InvalidSpec: ``before`` has no token.
        """
        start = self.ids(before)
        if not start:
            raise InvalidSpec("The layout must put at least one token before the answer.")
        x_BMD = self.embedded(answer)[:, :-1]  # M = L - 1: nothing follows the last token
        first_B1D = self.prefix(start).last_1D.expand(len(x_BMD), 1, -1)
        read_BMD = self.read(start, x_BMD, x_BMD.new_ones(x_BMD.shape[:2], dtype=torch.bool))
        hidden_BLD = torch.cat([first_B1D, read_BMD], dim=1)
        log_p_BLW = self.model.lm_head(hidden_BLD).float().log_softmax(-1)
        value_BL = log_p_BLW.gather(-1, answer.ids_BL[..., None])[..., 0]
        if answer.p_BLV is not None and answer.hard_BL is not None:
            assert answer.undecided_BL is not None
            soft_BL = (answer.p_BLV * log_p_BLW[..., self.alignment.index_V]).sum(-1)
            hard_BL = log_p_BLW.gather(-1, answer.hard_BL[..., None])[..., 0]
            value_BL = torch.where(answer.undecided_BL, answer.relaxed(soft_BL, hard_BL), value_BL)
        mean_B: Tensor = (value_BL * answer.seen_BL()).sum(1) / answer.length_B
        return mean_B
