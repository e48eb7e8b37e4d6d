"""Builds a frozen transformers language model from a checkpoint folder, with only one copy in
memory.
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

from aps_core.checkpoints.files import read_tensors
from aps_core.checkpoints.metadata import read_json
from aps_core.errors import WeightsInvalid, WeightsMissing

Network = type[PreTrainedModel]

Config = TypeVar("Config", bound=PretrainedConfig)

EXPLICIT = "aps_explicit"
"""Name under which :func:`explicit_attention` is registered in transformers."""

QWEN_WORDS = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Regular expression with which Qwen tokenizers split text into words before byte-pair merging."""


def load_network(
    folder: Path,
    network: Network,
    config: PretrainedConfig,
    device: torch.device,
    dtype: torch.dtype,
    stored_name: Callable[[str], str] = str,
    head_rows: slice | None = None,
    unused: tuple[str, ...] = (),
) -> Any:
    """Loads a checkpoint folder's safetensors, sharded or not, into ``network``, frozen and in
    evaluation mode.

    ``stored_name`` maps a parameter's name to its key in the file. A head tied to the embedding may
    be stored or omitted. ``head_rows`` selects the rows of the output head to load. ``unused`` are
    keys of the file that belong to another head.

    Raises:
        WeightsMissing: the file is absent.
        WeightsInvalid: a key is missing, unknown or of another shape, or the network has buffers
            this loader cannot compute.
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
        folder,
        shapes,
        ignore=(*unused, *((head,) if tied else ())),
        device=device,
        dtype=dtype,
        rows=rows,
    )
    if head_rows is not None:
        model.lm_head = torch.nn.Linear(
            config.hidden_size, head_rows.stop - head_rows.start, bias=False, device="meta"
        )
    model.load_state_dict(
        {names[key]: value for key, value in tensors.items()}, assign=True, strict=not tied
    )
    model.tie_weights()
    # Rotary tables are not stored, so they are computed outside the meta device.
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
    """Attention by matrix products, with the interface of transformers; returns (B, S, H, d).

    H query heads share G key heads. ``attention_mask`` (B, 1, S, S) is True where a position is
    attended to.

    Raises:
        ValueError: the attention is causal, but no mask is given.
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
    """Selects the attention implementation of a network that needs gradients.

    On CUDA, the deterministic backward pass of fused attention processes all keys of a head in one
    block of threads; explicit matrix products use the whole device. Fused attention on a CPU has no
    such limit.
    """
    config._attn_implementation = "sdpa" if torch.device(device).type == "cpu" else EXPLICIT
    return config


def load_tokenizer(folder: Path) -> Tokenizer:
    """Reads ``tokenizer.json``, or builds Qwen's byte-pair tokenizer from ``vocab.json`` and
    ``merges.txt`` (Dream).

    Raises:
        WeightsMissing: the folder has neither.
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
