"""Maps an unfinished answer from a prior's vocabulary to a reward model's.

Tokens with the same text correspond. A prior's token without counterpart gets probability 0, and
the rest is renormalised; where such a token is decided, the reward model reads its own unknown or
end token.

Shapes: B rows, L answer tokens, V the prior's vocabulary, W the reward model's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from aps_core.errors import WeightsInvalid
from aps_core.text.config import TextConfig
from aps_core.text.filtering import drawn_at, tempered


@dataclass(frozen=True)
class SoftAnswer:
    """An unfinished answer in the reward model's ids, with probabilities at undecided positions."""

    ids_BL: Tensor
    """The reward model's token at every position: decided, or the most likely."""
    length_B: Tensor
    """Number of tokens up to and including the end token of ``ids_BL``."""
    ended_B: Tensor
    """Whether there is an end token."""
    undecided_BL: Tensor | None = None
    """True at undecided positions; None if all tokens are decided."""
    p_BLV: Tensor | None = None
    """Probabilities over the prior's vocabulary, 0 for tokens without counterpart. Only rows of
    undecided tokens are used.
    """
    hard_BL: Tensor | None = None
    """The reward model's token that the relaxation reads at undecided positions."""
    weight: Tensor | float = 0.0
    """Weight of ``hard_BL`` against the expectation: (B, L) or a number."""

    def seen_BL(self, end: bool = True) -> Tensor:
        """True up to the end of the answer; ``end``: including the end token itself."""
        last_B = self.length_B if end else self.length_B - self.ended_B.long()
        return torch.arange(self.ids_BL.shape[1], device=self.ids_BL.device) < last_B[:, None]

    def relaxed(self, soft: Tensor, hard: Tensor) -> Tensor:
        """Blend of ``soft`` and ``hard``, (B, L) or (B, L, D), with the gradient of ``soft``."""
        weight = self.weight
        if isinstance(weight, Tensor) and soft.ndim > weight.ndim:
            weight = weight[..., None]
        return soft + (weight * (hard - soft)).detach()


@dataclass(frozen=True)
class Alignment:
    """The reward model's id for every token of a prior."""

    index_V: Tensor
    known_V: Tensor
    """False for tokens without counterpart."""
    ends_V: Tensor
    """True for tokens that end an answer."""
    coverage: float
    """Share of the prior's tokens that have a counterpart."""

    @classmethod
    def between(
        cls,
        prior: Tokenizer,
        reward: Tokenizer,
        width: int,
        ends: tuple[int, int],
        device: torch.device,
        *,
        share_end: bool,
    ) -> Alignment:
        """Compares the vocabularies.

        Args:
            prior: tokenizer of the prior.
            reward: tokenizer of the reward model.
            width: rows of the prior's logits, which may exceed its tokenizer's vocabulary.
            ends: end tokens of the prior and of the reward model.
            device: where the tables are used.
            share_end: map the prior's end token to the reward model's, and end the answer at any
                token mapped to it; otherwise the end token is mapped by its text like any other.

        Raises:
            WeightsInvalid: the vocabularies share less than half of the prior's tokens.
        """
        theirs = reward.get_vocab(with_added_tokens=True)
        ours = prior.get_vocab(with_added_tokens=True)
        pairs = {i: theirs[text] for text, i in ours.items() if text in theirs}
        coverage = len(pairs) / len(ours)
        if coverage < 0.5:
            raise WeightsInvalid(
                f"The reward model knows {len(pairs)} of the prior's {len(ours)} tokens; it must"
                " be of the same family."
            )
        pairs = {**pairs, ends[0]: ends[1]} if share_end else {ends[0]: ends[1], **pairs}
        unknown = getattr(reward.model, "unk_token", None)
        index_V = torch.full((width,), theirs.get(str(unknown), ends[1]))
        known_V = torch.zeros(width, dtype=torch.bool)
        places = torch.tensor(list(pairs))
        index_V[places], known_V[places] = torch.tensor(list(pairs.values())), True
        ends_V = torch.arange(width) == ends[0]
        if share_end:
            ends_V |= known_V & (index_V == ends[1])
        return cls(index_V.to(device), known_V.to(device), ends_V.to(device), coverage)

    def soft_answer(
        self,
        ids_BL: Tensor,
        undecided_BL: Tensor,
        phi_BLV: Tensor,
        config: TextConfig,
        uniform_BL: Tensor | None = None,
    ) -> SoftAnswer:
        """Converts an unfinished answer: Algorithm 1's lines 8 and 10.

        Args:
            ids_BL: decided tokens.
            undecided_BL: positions whose token is undecided.
            phi_BLV: logits of the undecided tokens.
            config: temperature, top-p, top-k and relaxation.
            uniform_BL: random numbers in [0, 1) for drawn tokens; None reads the likeliest ones.
        """
        phi_BLV = phi_BLV.masked_fill(~self.known_V, torch.finfo(phi_BLV.dtype).min)
        likeliest_BL = phi_BLV.detach().argmax(-1)
        hard_BL = likeliest_BL
        if uniform_BL is not None and config.relaxation.draws and config.temperature > 0:
            rows_NV = phi_BLV.detach().flatten(0, 1)
            hard_BL = drawn_at(rows_NV, uniform_BL.flatten(), config).view_as(likeliest_BL)
        decided = self.answer(torch.where(undecided_BL, likeliest_BL, ids_BL))
        return SoftAnswer(
            ids_BL=decided.ids_BL,
            length_B=decided.length_B,
            ended_B=decided.ended_B,
            undecided_BL=undecided_BL,
            p_BLV=tempered(phi_BLV, config).softmax(-1),
            hard_BL=self.index_V[hard_BL],
            weight=config.relaxation.weight(phi_BLV),
        )

    def answer(self, ids_BL: Tensor) -> SoftAnswer:
        """An answer of decided tokens."""
        ends_BL = self.ends_V[ids_BL]
        before_B = (ends_BL.cumsum(1) == 0).sum(1)
        length_B = (before_B + 1).clamp(max=ids_BL.shape[1])
        return SoftAnswer(self.index_V[ids_BL], length_B, ends_BL.any(1))
