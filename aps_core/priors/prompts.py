"""How long a prompt is for a prior, counted from its tokenizer's file before any weights are
loaded; needs no torch.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from aps_core.errors import InvalidSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def check_length(folder: Path, prompt: str, limit: int) -> None:
    """Refuses a prompt of more than ``limit`` tokens of the tokenizer in ``folder``:
    ``tokenizer.json``, or CLIP's two files.

    Raises:
        InvalidSpec: it is longer; the message says by how much.
    """
    tokens = len(_tokenizer(folder).encode(prompt, add_special_tokens=False).ids)
    if tokens > limit:
        raise InvalidSpec(
            f"The prompt has {tokens} tokens, the prior reads at most {limit}; shorten it"
            f" ({len(prompt)} characters now)."
        )


@lru_cache(maxsize=4)
def _tokenizer(folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    return Tokenizer.from_file(str(file)) if file.is_file() else _clip(folder)


def _clip(folder: Path) -> Tokenizer:
    """CLIP's byte-pair tokenizer from ``vocab.json`` and ``merges.txt``, as its release cuts
    text.
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
