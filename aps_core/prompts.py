"""How long a prompt is for a prior, counted from its tokenizer's file before any weights are loaded; needs no torch."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from aps_core.errors import InvalidSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def check_length(folder: Path, prompt: str, limit: int) -> None:
    """Refuses a prompt of more than ``limit`` tokens of the ``tokenizer.json`` in ``folder``.

    Raises:
        InvalidSpec: it is longer; the message says by how much.
    """
    tokens = len(_tokenizer(folder / "tokenizer.json").encode(prompt, add_special_tokens=False).ids)
    if tokens > limit:
        raise InvalidSpec(f"The prompt has {tokens} tokens, the prior reads at most {limit}; shorten it ({len(prompt)} characters now).")


@lru_cache(maxsize=4)
def _tokenizer(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file))
