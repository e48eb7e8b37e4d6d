"""Order of decoding in blocks, from left to right: which answer tokens a reverse step may decide,
and how many.

With one block, this is the schedule of Dream's release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.text.config import TextConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


@dataclass(frozen=True)
class Block:
    """Consecutive answer tokens, and the reverse steps that decide them."""

    start: int
    end: int
    """Answer tokens ``start`` to ``end - 1``."""
    first: int
    last: int
    """Reverse steps ``first`` to ``last - 1``, counted from 0."""

    def share(self, step: int, eps: float) -> Tensor:
        """Share of the block's masked tokens that a reverse step decides; 1 in its last step.

        Args:
            step: reverse step of the whole run, from ``first`` to ``last - 1``.
            eps: last time of the schedule, which runs from 1 to ``eps``.
        """
        if step == self.last - 1:
            return torch.tensor(1.0)
        times = torch.linspace(1, eps, self.last - self.first + 1)
        return 1 - times[step - self.first + 1] / times[step - self.first]

    def mask(self, prompt: int, length: int, device: torch.device) -> Tensor:
        """True (S,) at the block's tokens.

        Args:
            prompt: number of prompt tokens before the answer.
            length: S, tokens of prompt and answer.
            device: device of the result.
        """
        position_S = torch.arange(length, device=device) - prompt
        return (position_S >= self.start) & (position_S < self.end)


def blocks_of(config: TextConfig) -> list[Block]:
    """The blocks of an answer. Every block gets the same number of reverse steps, up to one.

    Raises:
        InvalidSpec: there are more blocks than reverse steps.
    """
    tokens, steps = config.max_new_tokens, config.steps
    length = config.block_length or tokens
    count = -(-tokens // length)
    if count > steps:
        raise InvalidSpec(
            f"{tokens} tokens in blocks of {length} are {count} blocks, but there are only"
            f" {steps} reverse steps. Raise steps or block_length."
        )
    return [
        Block(
            i * length,
            min((i + 1) * length, tokens),
            i * steps // count,
            (i + 1) * steps // count,
        )
        for i in range(count)
    ]
