"""Finished answers of a text task: text, ids, reward, and why they end. Needs no torch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from aps_core.text.masked_lm import MaskedLM

UNDECIDED = "▢"
"""Stands for an undecided token."""
INCOMPLETE = "\ufffd"
"""What a decoder makes of the first bytes of a character."""

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Answer:
    """One finished answer."""

    text: str
    ids: list[int]
    reward: float
    guided: bool
    tokens: int
    """Number of tokens before the end."""
    finish_reason: FinishReason
    """``stop``: an end token or stop string; ``length``: the answer fills all its positions."""
    prompt: int = 0
    """Index of its prompt among the job's."""


@dataclass(frozen=True)
class Row:
    """One answer while it is written."""

    text: str
    """Decided tokens, and a box for every undecided one."""
    settled: str
    """Beginning of the final text, which later steps do not change."""
    decided: list[int]
    """Positions decided in this step."""
    pieces: list[str]
    """Text of each of ``decided``."""
    reward: float | None
    """Reward at the last inner iteration of this step; None without guidance."""
    prompt: int = 0
    """Index of its prompt among the job's."""


def partial_text(prior: MaskedLM, ids: list[int]) -> str:
    """Text of an unfinished answer: decided tokens, and a box for every masked token."""
    stretches = [
        (masked, list(some)) for masked, some in groupby(ids, lambda token: token == prior.mask_id)
    ]
    return "".join(
        UNDECIDED * len(some) if masked else prior.tokenizer.decode(some, skip_special_tokens=True)
        for masked, some in stretches
    )


def settled_text(prior: MaskedLM, ids: list[int], stop: Sequence[str]) -> str:
    """The beginning of the final text as far as it is decided.

    White space at its end, a character cut in the middle, and what may be the beginning of a stop
    string are held back, as the following tokens may remove them.
    """
    first = ids.index(prior.mask_id) if prior.mask_id in ids else len(ids)
    text = prior.decode(ids[:first])
    if (cut := stop_at(text, stop)) is not None:
        return text[:cut].rstrip()
    if first == len(ids) or prior.length(ids[:first]) < first:
        return text
    held = max(
        (n for word in stop for n in range(1, len(word)) if text.endswith(word[:n])), default=0
    )
    return text[: len(text) - held].rstrip().rstrip(INCOMPLETE)


def stop_at(text: str, stop: Sequence[str]) -> int | None:
    """Index of the first stop string; None if there is none."""
    places = [place for word in stop if (place := text.find(word)) >= 0]
    return min(places, default=None)


def finished(
    prior: MaskedLM, ids: list[int], stop: Sequence[str]
) -> tuple[str, list[int], int, FinishReason]:
    """Text, ids, number of tokens, and finish reason of a complete answer.

    Tokens from the one that completes a stop string on are replaced by the end token.
    """
    length = prior.length(ids)
    text = prior.decode(ids)
    if (cut := stop_at(text, stop)) is None:
        return text, ids, length, "stop" if length < len(ids) else "length"

    def stopped(count: int) -> bool:
        return stop_at(prior.decode(ids[:count]), stop) is not None

    kept = bisect_left(range(1, length + 1), True, key=stopped)
    return text[:cut].rstrip(), [*ids[:kept], *[prior.eos_id] * (len(ids) - kept)], kept, "stop"
