"""Network and loss of the embedded text prior: Dream's class and loss, that is masked cross-entropy
on the answer, given the unmasked prompt.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Qwen2ForCausalLM

from aps_core.priors.dream.network import DreamConfig
from training import text_pairs
from training.loop import mixed_precision
from training.text_pairs import Encoded, PairSampler, special

PAD_WEIGHT = 0.1
"""Weight of padding end tokens (all but the first) in the loss, since they are numerous and easy to
predict.
"""
SHARES = {"nll_all": 1.0, "nll_half": 0.5, "nll_quarter": 0.25}
"""Shares of answer tokens masked in validation."""


def dream_config(tokenizer: Tokenizer, shape: dict[str, Any]) -> DreamConfig:
    """``config.json`` of the prior."""
    ids = {
        "mask_token_id": special(tokenizer, text_pairs.MASK),
        "eos_token_id": special(tokenizer, text_pairs.EOS),
    }
    return DreamConfig(**shape, **ids, rope_theta=10000.0, prompt_format=text_pairs.PROMPT_FORMAT)


def pad(rows: list[Encoded], width: int, eos: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pads a batch with end tokens.

    Returns:
        Ids (B, width); mask (B, width) of the answer region; mask (B, width) of the answer up to
        and including its first end token.
    """
    ids_BS = torch.tensor(
        [
            [*row.prompt, *row.answer, *[eos] * (width - len(row.prompt) - len(row.answer))]
            for row in rows
        ]
    )
    place_S = torch.arange(width)
    start_B1 = torch.tensor([[len(row.prompt)] for row in rows])
    end_B1 = start_B1 + torch.tensor([[len(row.answer)] for row in rows])
    return ids_BS, place_S >= start_B1, (place_S >= start_B1) & (place_S < end_B1)


def masked_nll(
    model: nn.Module,
    rows: list[Encoded],
    generator: torch.Generator,
    *,
    mask: int,
    eos: int,
    length: int,
    share: float | None = None,
) -> tuple[Tensor, int]:
    """Mean cross-entropy in nats over the masked tokens, and their number. As in Dream, each token
    is predicted at the preceding position.

    ``share`` is the share of answer tokens that are masked; by default it is drawn uniformly, and
    some batches are widened, to ``length`` tokens at most.
    """
    assert isinstance(model, Qwen2ForCausalLM)
    longest = max(len(row.prompt) + len(row.answer) for row in rows)
    # padding teaches the model answers that end early
    width = (
        longest
        if share is not None or torch.rand((), generator=generator) < 0.7
        else int(torch.randint(longest, length + 1, (), generator=generator))
    )
    ids_BS, region_BS, answer_BS = pad(rows, width, eos)
    share_B1 = (
        torch.rand(len(rows), 1, generator=generator)
        if share is None
        else torch.full((len(rows), 1), share)
    )
    masked_BS = region_BS & (torch.rand(ids_BS.shape, generator=generator) < share_B1)
    device = model.device
    with mixed_precision(device):
        seen_BS = ids_BS.masked_fill(masked_BS, mask).to(device)
        hidden_BSD = model.model(input_ids=seen_BS, use_cache=False).last_hidden_state
        logits_NV = model.lm_head(hidden_BSD[:, :-1][masked_BS[:, 1:].to(device)])
    weight_N = torch.where(answer_BS[masked_BS], 1.0, PAD_WEIGHT if share is None else 0.0).to(
        device
    )
    nll_N = F.cross_entropy(logits_NV.float(), ids_BS[masked_BS].to(device), reduction="none")
    return (nll_N * weight_N).sum() / weight_N.sum().clamp(min=1), int(weight_N.sum())


class MaskedLoss:
    """Draws batches of pairs of similar length and computes the training loss."""

    def __init__(
        self, model: nn.Module, sampler: PairSampler, length: int, batch: int, seed: int
    ) -> None:
        self.model = model
        self.sampler = sampler
        mask = special(sampler.tokenizer, text_pairs.MASK)
        self.nll = partial(masked_nll, mask=mask, eos=sampler.eos, length=length)
        self.batch = batch
        self.generator = torch.Generator().manual_seed(seed)
        self.waiting: list[list[Encoded]] = []

    def __call__(self, share: float) -> tuple[Tensor, dict[str, float]]:
        if not self.waiting:
            pool = sorted(
                self.sampler.draw(8 * self.batch), key=lambda row: len(row.prompt) + len(row.answer)
            )
            self.waiting = [pool[i : i + self.batch] for i in range(0, len(pool), self.batch)]
            self.sampler.random.shuffle(self.waiting)
        loss, _ = self.nll(self.model, self.waiting.pop(), self.generator)
        return loss, {"nll": loss.item()}


def validate(model: nn.Module, rows: list[Encoded], mask: int, eos: int) -> dict[str, float]:
    """Nats per answer token of withheld texts, with all, half and a quarter of them masked."""
    scores = {}
    ordered = sorted(rows, key=lambda row: len(row.prompt) + len(row.answer))
    batches = [ordered[i : i + 32] for i in range(0, len(ordered), 32)]
    with torch.no_grad():
        for name, share in SHARES.items():
            generator = torch.Generator().manual_seed(0)
            parts = [
                masked_nll(model, rows, generator, mask=mask, eos=eos, length=0, share=share)
                for rows in batches
            ]
            scores[name] = sum(float(loss) * n for loss, n in parts) / sum(n for _, n in parts)
    return scores
