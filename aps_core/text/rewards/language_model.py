"""A frozen causal language model that scores answers with undecided tokens.

The forward pass uses the discrete answer. Gradients flow as if it used the expected embedding
``x_bar = p @ E`` (straight-through, the text form of Algorithm 1's lines 8 to 11; paper appendix,
section "Question Answering"). The reward model only has embeddings for its own tokens: a prior's
token without a counterpart gets probability 0, and the rest is renormalised.

Nothing here synchronises with the device or depends on the number of undecided tokens, so the whole
reward and its gradient can be a CUDA graph (:mod:`aps_core.text.aps`).

Shapes: B rows, L answer tokens, S sequence, V the prior's vocabulary, W the reward model's, D its
width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from aps_core.checkpoints.metadata import read_json
from aps_core.checkpoints.networks import differentiable, load_network, load_tokenizer
from aps_core.errors import InvalidSpec, WeightsInvalid


@dataclass(frozen=True)
class SoftAnswer:
    """An unfinished answer in the reward model's ids, with probabilities at undecided positions."""

    ids_BL: Tensor
    """The reward model's token at every position: decided, or the most likely."""
    undecided_BL: Tensor
    """True at undecided positions."""
    p_BLV: Tensor | None
    """Probabilities over the prior's vocabulary, 0 for tokens without counterpart. Only rows of
    undecided tokens are used. None if all tokens are decided.
    """
    length_B: Tensor
    """Number of tokens up to and including the end token."""


class Alignment:
    """Maps tokens of a prior to tokens of a reward model with the same text."""

    def __init__(
        self,
        prior: Tokenizer,
        reward: Tokenizer,
        width: int,
        device: torch.device,
        ends: tuple[int, int],
    ) -> None:
        """``width``: rows of the prior's logits, which may exceed its tokenizer's vocabulary.
        ``ends``: both end tokens, which are mapped to each other.

        Raises:
            WeightsInvalid: the vocabularies share less than half of the prior's tokens.
        """
        theirs = reward.get_vocab(with_added_tokens=True)
        pairs = {
            i: theirs[text]
            for text, i in prior.get_vocab(with_added_tokens=True).items()
            if text in theirs
        } | {ends[0]: ends[1]}
        if len(pairs) < prior.get_vocab_size() / 2:
            raise WeightsInvalid(
                f"The reward model knows {len(pairs)} of the prior's {prior.get_vocab_size()}"
                " tokens; it must be of the same family."
            )
        index_V = torch.full((width,), -1)
        index_V[torch.tensor(list(pairs))] = torch.tensor(list(pairs.values()))
        self.known_V = (index_V >= 0).to(device)
        self.index_V = index_V.clamp(min=0).to(device)

    def soft_answer(
        self, ids_BL: Tensor, undecided_BL: Tensor, phi_BLV: Tensor, end: int
    ) -> SoftAnswer:
        """Converts an unfinished answer for the reward model: lines 8 and 10. ``end`` is the reward
        model's end token.
        """
        p_BLV = phi_BLV.masked_fill(~self.known_V, -torch.inf).softmax(-1)
        answer = self.answer(torch.where(undecided_BL, p_BLV.detach().argmax(-1), ids_BL), end)
        return replace(answer, undecided_BL=undecided_BL, p_BLV=p_BLV)

    def answer(self, ids_BL: Tensor, end: int) -> SoftAnswer:
        """An answer of decided tokens, in the reward model's ids."""
        read_BL = self.index_V[ids_BL]
        ended_BL = (read_BL == end).cumsum(1)
        length_B = ((ended_BL == 0).sum(1) + 1).clamp(max=ids_BL.shape[1])
        return SoftAnswer(read_BL, torch.zeros_like(read_BL, dtype=torch.bool), None, length_B)


class RewardModel:
    """A causal language model, its tokenizer, and its alignment with a prior's vocabulary."""

    def __init__(self, model: Any, tokenizer: Tokenizer, alignment: Alignment, end: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.alignment = alignment
        self.end = end
        if any(weight.requires_grad for weight in model.parameters()):
            raise InvalidSpec("A reward model must be frozen: only the logits are optimised.")
        self.embedding_WD: Tensor = model.get_input_embeddings().weight
        # one row for each of the prior's tokens, so that the expectation is one product
        self.aligned_VD = self.embedding_WD[alignment.index_V]
        self._texts: dict[str, Tensor] = {}

    def token(self, text: str) -> int:
        """Id of a text that is a single token.

        Raises:
            InvalidSpec: the text is not exactly one token.
        """
        ids = self._ids(text)
        if len(ids) != 1:
            raise InvalidSpec(f"{text!r} is {len(ids)} tokens of the reward model; it must be one.")
        return ids[0]

    def next_logits(self, before: str, answer: SoftAnswer, after: str) -> Tensor:
        """Logits (B, W), float32, of the token after ``before + answer + after``. The answer is
        truncated at its end token.
        """
        place_L = torch.arange(answer.ids_BL.shape[1], device=answer.ids_BL.device)
        kept_BL = (
            place_L
            < answer.length_B[:, None] - (answer.ids_BL == self.end).any(1, keepdim=True).long()
        )
        parts = (
            self._embed(before, len(kept_BL)),
            self._embed_answer(answer),
            self._embed(after, len(kept_BL)),
        )
        seen_BS = torch.cat(
            [
                kept_BL.new_ones(kept_BL.shape[0], parts[0].shape[1]),
                kept_BL,
                kept_BL.new_ones(kept_BL.shape[0], parts[2].shape[1]),
            ],
            dim=1,
        )
        position_BS = (seen_BS.long().cumsum(1) - 1).clamp(min=0)
        x_BSD = torch.cat(parts, dim=1)
        output = self.model(
            inputs_embeds=x_BSD,
            attention_mask=causal_mask(seen_BS),
            position_ids=position_BS,
            use_cache=False,
            logits_to_keep=1,
        )
        last_BW: Tensor = output.logits[:, -1].float()
        return last_BW

    def mean_log_likelihood(self, before: str, answer: SoftAnswer) -> Tensor:
        """Mean of log p(token | before, previous tokens) over the answer's tokens including its
        end, in nats: (B,).
        """
        x_BSD = torch.cat(
            [self._embed(before, len(answer.ids_BL)), self._embed_answer(answer)[:, :-1]], dim=1
        )
        length, seen_BS = answer.ids_BL.shape[1], x_BSD.new_ones(x_BSD.shape[:2], dtype=torch.bool)
        output = self.model(
            inputs_embeds=x_BSD,
            attention_mask=causal_mask(seen_BS),
            use_cache=False,
            logits_to_keep=length,
        )
        log_p_BLW = output.logits.float().log_softmax(-1)
        value_BL = log_p_BLW.gather(-1, answer.ids_BL[..., None])[..., 0]
        if answer.p_BLV is not None:
            expected_BL = (answer.p_BLV * log_p_BLW[..., self.alignment.index_V]).sum(-1)
            value_BL = value_BL + (expected_BL - expected_BL.detach()) * answer.undecided_BL
        counted_BL = torch.arange(length, device=value_BL.device) < answer.length_B[:, None]
        mean_B: Tensor = (value_BL * counted_BL).sum(1) / answer.length_B
        return mean_B

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def _embed(self, text: str, batch: int) -> Tensor:
        """Embeddings (B, S, D) of a fixed text. Only the texts of the latest prompt are cached."""
        if text not in self._texts:
            ids_S = torch.tensor(self._ids(text), dtype=torch.long, device=self.embedding_WD.device)
            self._texts = {**dict(list(self._texts.items())[-3:]), text: self.embedding_WD[ids_S]}
        return self._texts[text].expand(batch, -1, -1)

    def _embed_answer(self, answer: SoftAnswer) -> Tensor:
        """Lines 9 and 11: the embedding of the discrete token, with the gradient of the expected
        embedding.
        """
        x_BLD = self.embedding_WD[answer.ids_BL]
        if answer.p_BLV is None:
            return x_BLD
        x_bar_BLD = (answer.p_BLV.to(self.aligned_VD.dtype) @ self.aligned_VD).float()
        x_tilde_BLD = x_bar_BLD + (x_BLD.float() - x_bar_BLD).detach()
        return torch.where(answer.undecided_BL[..., None], x_tilde_BLD.to(x_BLD.dtype), x_BLD)


def causal_mask(seen_BS: Tensor) -> Tensor:
    """Attention mask (B, 1, S, S): each position attends to itself and to valid positions before
    it. Transformers uses it without reading its values.
    """
    length = seen_BS.shape[1]
    before_SS = torch.ones(length, length, dtype=torch.bool, device=seen_BS.device).tril()
    itself_SS = torch.eye(length, dtype=torch.bool, device=seen_BS.device)
    return (before_SS & seen_BS[:, None, None, :]) | itself_SS


def load_reward(
    folder: Path,
    prior_tokenizer: Tokenizer,
    prior_width: int,
    prior_end: int,
    device: torch.device,
    dtype: torch.dtype,
) -> RewardModel:
    """Loads a causal language model's folder (Qwen3, Qwen2, Llama): ``config.json``,
    ``model.safetensors``, ``tokenizer.json``.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: a key is missing, unknown or of another shape, or the vocabulary belongs to
            another model family.
    """
    data = read_json(folder / "config.json")
    try:
        config = AutoConfig.for_model(**data)
        network: Any = AutoModelForCausalLM._model_mapping[type(config)]
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsInvalid(
            f"{folder / 'config.json'} does not describe a causal language model in transformers:"
            f" {error}"
        ) from error
    tokenizer = load_tokenizer(folder)
    config.use_cache = False
    model = load_network(folder, network, differentiable(config, device), device, dtype)
    end = data.get("eos_token_id")
    if not isinstance(end, int):
        raise WeightsInvalid(f"{folder / 'config.json'}: eos_token_id is {end!r}, expected one id.")
    return RewardModel(
        model,
        tokenizer,
        Alignment(prior_tokenizer, tokenizer, prior_width, device, (prior_end, end)),
        end,
    )
