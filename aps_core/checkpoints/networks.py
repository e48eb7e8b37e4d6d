"""Builds a frozen transformers language model from a checkpoint folder, without ever holding it
twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.masking_utils import sdpa_mask

from aps_core.checkpoints.files import read_json, read_tensors
from aps_core.errors import WeightsInvalid, WeightsMissing

Network = type[PreTrainedModel]

Config = TypeVar("Config", bound=PretrainedConfig)

EXPLICIT = "aps_explicit"
"""Name under which transformers knows :func:`explicit_attention`."""

QWEN_WORDS = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How the Qwen tokenizers cut text into words before byte-pair merging."""


def load_network(
    folder: Path,
    network: Network,
    config: PretrainedConfig,
    device: torch.device,
    dtype: torch.dtype,
    stored_name: Callable[[str], str] = str,
    head_rows: slice | None = None,
) -> Any:
    """Reads a checkpoint folder's safetensors, sharded or not, into ``network``, frozen and in
    evaluation mode.

    ``stored_name`` maps a parameter's name to its key in the file. A head tied to the embedding may
    be stored or left out. ``head_rows``: the only rows of the output head to be read and kept.

    Raises:
        WeightsMissing: the file is absent.
        WeightsInvalid: a key is missing, unknown or of another shape, or the network has tables
            this loader cannot derive.
    """
    with torch.device("meta"):
        model = network(config)
    tied = config.tie_word_embeddings
    names = {
        stored_name(key): key
        for key in model.state_dict()
        if not (tied and key == "lm_head.weight")
    }
    shapes = {stored: model.state_dict()[name].shape for stored, name in names.items()}
    head = stored_name("lm_head.weight")
    rows = {} if head_rows is None else {head: head_rows}
    tensors = read_tensors(
        folder, shapes, ignore=(head,) if tied else (), device=device, dtype=dtype, rows=rows
    )
    if head_rows is not None:
        model.lm_head = torch.nn.Linear(
            config.hidden_size, head_rows.stop - head_rows.start, bias=False, device="meta"
        )
    model.load_state_dict(
        {names[key]: value for key, value in tensors.items()}, assign=True, strict=not tied
    )
    model.tie_weights()
    # Rotary tables are derived, not stored: build them off the meta device.
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(device)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_meta:
            raise WeightsInvalid(
                f"{folder}: {network.__name__} derives '{name}' in a way this loader does not know."
            )
    return model.eval().requires_grad_(False)


def explicit_attention(
    module: torch.nn.Module,
    q_BHSd: Tensor,
    k_BGSd: Tensor,
    v_BGSd: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention by matrix products, as transformers calls it; returns (B, S, H, d). H query heads
    share G key heads. ``attention_mask``: True where a position is seen, (B, 1, S, S).

    Raises:
        ValueError: the attention is causal and no mask says so.
    """
    if attention_mask is None and getattr(module, "is_causal", False):
        raise ValueError("Explicit attention needs a causal network's mask.")
    share = q_BHSd.shape[1] // k_BGSd.shape[1]
    scale = q_BHSd.shape[-1] ** -0.5 if scaling is None else scaling
    q_BGsSd = (q_BHSd * scale).unflatten(1, (-1, share))
    scores_BGsSS = q_BGsSd @ k_BGSd[:, :, None].transpose(-1, -2)
    if attention_mask is not None:
        hidden = torch.finfo(scores_BGsSS.dtype).min
        scores_BGsSS = scores_BGsSS.masked_fill(~attention_mask[:, :, None], hidden)
    out_BGsSd = scores_BGsSS.softmax(-1) @ v_BGSd[:, :, None]
    return out_BGsSd.flatten(1, 2).transpose(1, 2), None


AttentionInterface.register(EXPLICIT, explicit_attention)
AttentionMaskInterface.register(EXPLICIT, sdpa_mask)


def differentiable(config: Config, device: torch.device | str) -> Config:
    """Chooses the attention of a network whose gradients are wanted. On CUDA the deterministic
    backward pass of fused attention visits all keys in one block of threads per head; explicit
    matrix products use the whole device. The CPU's fused attention has no such limit.
    """
    config._attn_implementation = "sdpa" if torch.device(device).type == "cpu" else EXPLICIT
    return config


def load_tokenizer(folder: Path) -> Tokenizer:
    """Reads ``tokenizer.json``; where a release has ``vocab.json`` and ``merges.txt`` instead
    (Dream), builds Qwen's byte-pair tokenizer.

    Raises:
        WeightsMissing: neither is there.
        WeightsInvalid: a file is damaged.
    """
    path = folder / "tokenizer.json"
    if path.is_file():
        read_json(path)
        return Tokenizer.from_file(str(path))
    if not (folder / "merges.txt").is_file():
        raise WeightsMissing(f"{folder} has neither tokenizer.json nor vocab.json and merges.txt.")
    vocabulary = read_json(folder / "vocab.json")
    lines = [
        line.split(" ")
        for line in (folder / "merges.txt").read_text().splitlines()
        if line and not line.startswith("#version")
    ]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=[(left, right) for left, right in lines])
    )
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(QWEN_WORDS, behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    added = read_json(folder / "added_tokens.json")
    tokenizer.add_special_tokens(
        [
            AddedToken(text, special=True, normalized=False)
            for text, _ in sorted(added.items(), key=lambda item: int(item[1]))
        ]
    )
    wrong = {text: i for text, i in added.items() if tokenizer.token_to_id(text) != i}
    if wrong:
        raise WeightsInvalid(
            f"{folder / 'added_tokens.json'}: the ids {wrong} do not follow the vocabulary's"
            f" {len(vocabulary)} tokens."
        )
    return tokenizer
