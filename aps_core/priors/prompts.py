"""Prompt length in a prior's tokens, from its tokenizer file without loading weights. Needs no
torch.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from aps_core.errors import InvalidSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def check_length(folder: Path, prompt: str, limit: int) -> None:
    """Rejects a prompt of more than ``limit`` tokens.

    ``folder`` holds the tokenizer: ``tokenizer.json``, or CLIP's ``vocab.json`` and ``merges.txt``.

    Raises:
        InvalidSpec: the prompt is longer; the message contains both numbers.
    """
    tokens = token_count(folder, prompt)
    if tokens > limit:
        raise InvalidSpec(
            f"The prompt has {tokens} tokens, the prior reads at most {limit}; shorten it"
            f" ({len(prompt)} characters now)."
        )


def token_count(folder: Path, text: str) -> int:
    """Tokens of a text, without special tokens around it."""
    return len(_tokenizer(folder).encode(text, add_special_tokens=False).ids)


@lru_cache(maxsize=4)
def _tokenizer(folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    return Tokenizer.from_file(str(file)) if file.is_file() else _clip(folder)


def _clip(folder: Path) -> Tokenizer:
    """CLIP's byte-pair tokenizer from ``vocab.json`` and ``merges.txt``, splitting text as its
    release does.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    model = models.BPE.from_file(
        str(folder / "vocab.json"),
        str(folder / "merges.txt"),
        end_of_word_suffix="</w>",
        unk_token="<|endoftext|>",
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    cut = pre_tokenizers.Split(
        Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"),
        behavior="removed",
        invert=True,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [cut, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer
