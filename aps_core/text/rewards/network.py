"""A frozen causal transformer that reads fixed text around an answer given as embeddings.

The text before the answer is the same in every inner step, so its keys and values are computed once
per prompt. The text after the answer attends to it and is computed in every step.

Nothing here synchronises with the device or depends on the number of undecided tokens, so a whole
reward and its gradient can be a CUDA graph (:mod:`aps_core.text.aps`).

Shapes: B rows, L answer tokens, P tokens before the answer, A after it, T = L + A, S = P + T,
D width, H key heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from aps_core.errors import InvalidSpec
from aps_core.text.rewards.alignment import Alignment, SoftAnswer

PREFIXES = 16
"""Number of prefixes whose keys and values are kept: as many as a job has prompts at most."""

Kind = Literal["classifier", "language_model"]


class PrefixLayer(DynamicLayer):
    """Keys and values (1, H, P, D) of a fixed prefix in one layer. New ones are appended to a
    copy, so every pass starts from the prefix alone.
    """

    def __init__(self, keys_1HPD: Tensor, values_1HPD: Tensor) -> None:
        super().__init__()
        self.fixed = keys_1HPD, values_1HPD
        self.keys = keys_1HPD
        self.values = values_1HPD
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of prefix and new positions."""
        keys_BHPD, values_BHPD = (part.expand(len(key_states), -1, -1, -1) for part in self.fixed)
        return (
            torch.cat([keys_BHPD, key_states], dim=-2),
            torch.cat([values_BHPD, value_states], dim=-2),
        )


@dataclass(frozen=True)
class Prefix:
    """A text before the answer."""

    cache: Cache
    last_1D: Tensor
    """Hidden state of its last token, which predicts the answer's first."""


class RewardNetwork:
    """A causal transformer, its tokenizer, and its alignment with a prior's vocabulary."""

    kind: ClassVar[Kind]

    def __init__(
        self, model: Any, tokenizer: Tokenizer, alignment: Alignment, *, reuse: bool = True
    ) -> None:
        """``reuse``: keep keys and values of the text before the answer; False only to compare."""
        if any(weight.requires_grad for weight in model.parameters()):
            raise InvalidSpec("A reward model must be frozen: only the logits are optimised.")
        self.model = model
        self.tokenizer = tokenizer
        self.alignment = alignment
        self.reuse = reuse
        self.embedding: Any = model.get_input_embeddings()
        # one row for each of the prior's tokens, so that the expectation is one product
        self.aligned_VD: Tensor = self.embedding(alignment.index_V)
        self._prefixes: dict[tuple[int, ...], Prefix] = {}
        self._constants: dict[tuple[int, ...], Tensor] = {}

    def ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a text; special tokens are recognised, none are added."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def embedded(self, answer: SoftAnswer) -> Tensor:
        """Embeddings (B, L, D) of an answer: Algorithm 1's lines 9 and 11."""
        x_BLD: Tensor = self.embedding(answer.ids_BL)
        if answer.p_BLV is None or answer.hard_BL is None or answer.undecided_BL is None:
            return x_BLD
        soft_BLD = (answer.p_BLV.to(self.aligned_VD.dtype) @ self.aligned_VD).float()
        relaxed_BLD = answer.relaxed(soft_BLD, self.embedding(answer.hard_BL).float())
        return torch.where(answer.undecided_BL[..., None], relaxed_BLD.to(x_BLD.dtype), x_BLD)

    def read(
        self,
        before: tuple[int, ...],
        x_BLD: Tensor,
        seen_BL: Tensor,
        after: tuple[int, ...] = (),
        *,
        compact: bool = False,
    ) -> Tensor:
        """Hidden states (B, T, D) of the answer and what follows.

        Args:
            before: ids before the answer.
            x_BLD: embeddings of the answer.
            seen_BL: False at positions no other position attends to.
            after: ids after the answer.
            compact: number positions without the unseen ones; otherwise they keep their place.
        """
        rows, start = len(x_BLD), len(before)
        seen_BS = torch.nn.functional.pad(seen_BL, (start, len(after)), value=True)
        if compact:
            position_BS = (seen_BS.long().cumsum(1) - 1).clamp(min=0)
        else:
            position_BS = torch.arange(seen_BS.shape[1], device=x_BLD.device)[None]
        # T: the positions that are computed, with or without those before the answer
        x_BTD = torch.cat([x_BLD, self._embed(after).expand(rows, -1, -1)], dim=1)
        mask_B1SS = causal_mask(seen_BS)
        if not (self.reuse and before):
            x_BTD = torch.cat([self._embed(before).expand(rows, -1, -1), x_BTD], dim=1)
            return self._run(x_BTD, mask_B1SS, position_BS)[:, start:]
        return self._run(
            x_BTD,
            mask_B1SS[:, :, start:],
            position_BS[:, start:],
            past_key_values=self.prefix(before).cache,
        )

    def _run(self, x_BTD: Tensor, mask: Tensor, position_BT: Tensor, **more: Any) -> Tensor:
        hidden: Tensor = self.model.model(
            inputs_embeds=x_BTD, attention_mask=mask, position_ids=position_BT, **more
        ).last_hidden_state
        return hidden

    @torch.no_grad()
    def prefix(self, ids: tuple[int, ...]) -> Prefix:
        """Keys and values of the text before the answer, of the latest prompts."""
        if ids not in self._prefixes:
            x_1PD, cache = self._embed(ids), DynamicCache(config=self.model.config)
            computed: Any = cache.layers  # DynamicLayer, whose types transformers leaves open
            seen_1P = x_1PD.new_ones(x_1PD.shape[:2], dtype=torch.bool)
            position_1P = torch.arange(len(ids), device=x_1PD.device)[None]
            hidden_1PD = self._run(
                x_1PD, causal_mask(seen_1P), position_1P, past_key_values=cache, use_cache=True
            )
            layers: list[Any] = [PrefixLayer(layer.keys, layer.values) for layer in computed]
            kept = list(self._prefixes.items())[1 - PREFIXES :]
            self._prefixes = {**dict(kept), ids: Prefix(Cache(layers), hidden_1PD[:, -1])}
        return self._prefixes[ids]

    def _embed(self, ids: tuple[int, ...]) -> Tensor:
        """Embeddings (1, S, D) of fixed tokens."""
        return self.embedding(self._constant(ids))[None]  # type: ignore[no-any-return]

    def _constant(self, ids: tuple[int, ...]) -> Tensor:
        """Token ids on the device, kept: a captured graph must not copy them from the host."""
        if ids not in self._constants:
            kept = list(self._constants.items())[1 - 2 * PREFIXES :]
            fresh = torch.tensor(ids, dtype=torch.long, device=self.aligned_VD.device)
            self._constants = {**dict(kept), ids: fresh}
        return self._constants[ids]


def causal_mask(seen_BS: Tensor) -> Tensor:
    """Attention mask (B, 1, S, S): each position attends to itself and to seen positions before
    it. Transformers uses it without reading its values.
    """
    length = seen_BS.shape[1]
    before_SS = torch.ones(length, length, dtype=torch.bool, device=seen_BS.device).tril()
    itself_SS = torch.eye(length, dtype=torch.bool, device=seen_BS.device)
    return (before_SS & seen_BS[:, None, None, :]) | itself_SS
