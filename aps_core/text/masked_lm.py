"""A masked diffusion language model for text, used by Dream and LLaDA.

Shapes: B rows, S sequence (prompt and answer), V vocabulary.
"""

from __future__ import annotations

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedModel

from aps_core.text.chat import Chat, TextIds


class MaskedLM:
    """Implements :class:`aps_core.types.TextPrior`. With ``shifted``, the output at position i - 1
    predicts token i (Dream).
    """

    def __init__(
        self, model: PreTrainedModel, ids: TextIds, tokenizer: Tokenizer, *, shifted: bool
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.shifted = shifted
        self.ids = ids
        self.vocab_size = ids.vocab_size
        self.mask_id = ids.mask_token_id
        self.eos_id = ids.eos_token_id

    @torch.no_grad()
    def logits(self, ids_BS: Tensor, attention_BS: Tensor | None = None) -> Tensor:
        """Logits (B, S, V) of every position, float32. ``attention_BS`` is 0 at padding.

        Without padding, no mask is used; logits at padding are undefined.
        """
        if attention_BS is None or bool(attention_BS.all()):
            logits_BSV = self.model(input_ids=ids_BS, use_cache=False).logits
        else:
            logits_BSV = self.model(
                input_ids=ids_BS,
                attention_mask=attention_BS.long(),
                position_ids=positions(attention_BS),
                use_cache=False,
            ).logits
        if self.shifted:
            logits_BSV = torch.cat([logits_BSV[:, :1], logits_BSV[:, :-1]], dim=1)
        return logits_BSV.float()  # type: ignore[no-any-return]

    def encode(self, prompt: str | Chat) -> list[int]:
        """Token ids of a prompt or chat, ready for the answer."""
        return self.tokenizer.encode(self.ids.render(prompt), add_special_tokens=False).ids

    def length(self, ids: list[int]) -> int:
        """Number of tokens before the first end token."""
        ends = {
            self.eos_id,
            self.tokenizer.token_to_id("<|im_end|>"),
            self.tokenizer.token_to_id("<|eot_id|>"),
        }
        return next((i for i, token in enumerate(ids) if token in ends), len(ids))

    def decode(self, ids: list[int]) -> str:
        """Text of the answer up to its end token, without special tokens and masks."""
        kept = [token for token in ids[: self.length(ids)] if token != self.mask_id]
        return self.tokenizer.decode(kept, skip_special_tokens=True).strip()


def positions(attention_BS: Tensor) -> Tensor:
    """Positions (B, S) that count from the first real token. Padding gets position 1, as in Dream's
    release.
    """
    return (attention_BS.long().cumsum(-1) - 1).masked_fill(attention_BS == 0, 1)
