"""Networks and losses of the reward model and the judge.

One causal transformer with two heads: a scalar score at the end of the text, trained on preferences
(Bradley-Terry), and next-token prediction of the better answers. The checkpoint serves as
``Qwen3ForSequenceClassification`` and as ``Qwen3ForCausalLM``.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from training import text_pairs
from training.loop import mixed_precision
from training.preferences import KINDS, Preference, Preferences
from training.text_pairs import Encoded, PairSampler

LM_WEIGHT = 0.5
"""Weight of next-token prediction beside the preferences."""

CHAT_TEMPLATE = (
    text_pairs.PROMPT + "{% for message in messages[:-1] %}"
    "{% if loop.length > 1 %}{{ message['role'] | capitalize }}: {% endif %}"
    "{{ message['content'] }}"
    "{% if not loop.last %}{{ '\\n\\n' }}{% endif %}"
    "{% endfor %}" + text_pairs.ANSWER + "{{ messages[-1]['content'] }}" + text_pairs.EOS
)
"""The layout of training as a chat template, several messages as in
:func:`aps_core.text.chat.transcript`; the last message is the answer, and the score is read at the
end token.
"""


class ScoredLM(nn.Module):
    """A causal language model with a second, scalar head."""

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        self.lm = Qwen3ForCausalLM(config)
        self.lm.set_attn_implementation("eager")  # see training/text.py
        self.score = nn.Linear(config.hidden_size, 1, bias=False)
        nn.init.normal_(self.score.weight, std=config.hidden_size**-0.5)


def config(tokenizer: Tokenizer, shape: dict[str, Any], head: int) -> Qwen3Config:
    """``config.json`` of the checkpoint."""
    ids: dict[str, Any] = {
        "eos_token_id": text_pairs.special(tokenizer, text_pairs.EOS),
        "bos_token_id": None,
        "pad_token_id": None,
    }
    more: dict[str, Any] = {
        "head_dim": head,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "use_cache": False,
        "architectures": ["Qwen3ForSequenceClassification", "Qwen3ForCausalLM"],
        "num_labels": 1,
    }
    return Qwen3Config(**shape, **ids, **more)


class PreferenceLoss:
    """Draws batches of preferences about texts of similar length and computes the training loss."""

    def __init__(self, model: ScoredLM, sampler: PairSampler, batch: int, seed: int) -> None:
        self.model = model
        self.sampler = sampler
        self.preferences = Preferences(sampler.pair, Random(seed))
        self.batch = batch
        self.waiting: list[list[Preference]] = []

    def __call__(self, share: float) -> tuple[Tensor, dict[str, float]]:
        if not self.waiting:
            pool = [self.preferences.draw() for _ in range(8 * self.batch)]
            pool.sort(key=lambda each: len(each.better) + len(each.worse))
            self.waiting = [pool[i : i + self.batch] for i in range(0, len(pool), self.batch)]
            self.sampler.random.shuffle(self.waiting)
        margin_N, nll = compare(self.model, self.sampler, self.waiting.pop())
        preference = -F.logsigmoid(margin_N).mean()
        values = {"preference": preference.item(), "nll": nll.item()}
        return preference + LM_WEIGHT * nll, values


def compare(
    model: ScoredLM, sampler: PairSampler, batch: Sequence[Preference]
) -> tuple[Tensor, Tensor]:
    """Scores of the better minus those of the worse answers, each read in two places (2B,), and
    nats per token of the better answers. Shapes: B preferences, R = 2B rows, S tokens.

    A finished answer's score is read at its end token. An unfinished one occupies all of its
    positions, and its score is read at another end token after them.
    """
    answers = [(each.prompt, each.better) for each in batch]
    answers += [(each.prompt, each.worse) for each in batch]
    rows = sampler.encode(answers)
    width = max(len(row.prompt) + len(row.answer) for row in rows)
    device = model.score.weight.device
    ids_RS = torch.tensor([padded(row, width, sampler.eos) for row in rows], device=device)
    start_R = torch.tensor([len(row.prompt) for row in rows], device=device)
    end_R = start_R + torch.tensor([len(row.answer) - 1 for row in rows], device=device)
    place_S = torch.arange(width + 1, device=device)
    row_R = torch.arange(len(rows), device=device)
    seen_RS = (place_S <= end_R[:, None]) | (place_S == width)
    # each token is predicted at the preceding position
    predicts_RS = (place_S >= start_R[:, None] - 1) & (place_S < end_R[:, None])
    predicts_RS &= row_R[:, None] < len(batch)
    with mixed_precision(device):
        hidden_RSD = model.lm.model(
            input_ids=ids_RS, attention_mask=seen_RS.long(), position_ids=place_S[None]
        ).last_hidden_state
        logits_NV = model.lm.lm_head(hidden_RSD[predicts_RS])
    nll = F.cross_entropy(logits_NV.float(), ids_RS.roll(-1, 1)[predicts_RS])
    ends_2RD = torch.cat([hidden_RSD[row_R, end_R], hidden_RSD[:, width]]).float()
    better_2B, worse_2B = model.score(ends_2RD)[:, 0].view(2, 2, len(batch)).unbind(1)
    return (better_2B - worse_2B).flatten(), nll


def validate(model: ScoredLM, sampler: PairSampler, each: int) -> dict[str, float]:
    """Share of ``each`` withheld preferences of every kind that are told apart, and nats per token
    of their better answers.
    """
    preferences = Preferences(sampler.pair, Random(0))
    values, nlls = dict[str, float](), list[float]()
    with torch.no_grad():
        for kind in KINDS:
            margin_N, nll = compare(model, sampler, [preferences.draw(kind) for _ in range(each)])
            values[f"accuracy_{kind}"] = (margin_N > 0).float().mean().item()
            nlls.append(nll.item())
    return {**values, "nll_answer": sum(nlls) / len(nlls)}


def padded(row: Encoded, width: int, eos: int) -> list[int]:
    """A row's ids, end tokens up to ``width``, and the end token that closes the template."""
    ids = [*row.prompt, *row.answer]
    return [*ids, *[eos] * (width - len(ids) + 1)]
