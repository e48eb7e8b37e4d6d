"""Loads a reward model's folder: a sequence classifier, a causal language model, or a LoRA adapter
on one of them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PretrainedConfig,
)

from aps_core.checkpoints import checkpoint_cache
from aps_core.checkpoints.manifest import CHECKPOINTS
from aps_core.checkpoints.metadata import read_json
from aps_core.checkpoints.networks import differentiable, load_network, load_tokenizer
from aps_core.errors import WeightsInvalid
from aps_core.text.masked_lm import MaskedLM
from aps_core.text.rewards.alignment import Alignment
from aps_core.text.rewards.chat_template import ChatTemplate
from aps_core.text.rewards.classifier import ClassifierReward
from aps_core.text.rewards.language_model import LanguageModelReward
from aps_core.text.rewards.network import Kind, RewardNetwork

ADAPTER = "adapter_config.json"

UNSUPPORTED = (
    "rank_pattern",
    "alpha_pattern",
    "fan_in_fan_out",
    "use_dora",
    "layer_replication",
    "alora_invocation_tokens",
)
"""Fields of an adapter that change what it adds to its base; merging it without them would give
another model.
"""

PLAIN_STARTS = (True, False, "gaussian", "eva", "orthogonal")
"""Values of ``init_lora_weights`` that leave the base's weights as published."""

SCORE = "score.weight"
"""Key of a classifier's head."""


def load_reward(
    folder: Path,
    prior: MaskedLM,
    device: torch.device,
    dtype: torch.dtype,
    kind: Kind | None = None,
) -> RewardNetwork:
    """Loads a reward model for the answers of ``prior``: ``config.json``, ``model.safetensors``,
    ``tokenizer.json``, and the chat template of a classifier. The entry ``architectures`` of
    ``config.json`` tells a classifier from a language model.

    A checkpoint with the heads of both lists both architectures; ``kind`` selects one of them,
    by default the first. Any other checkpoint is loaded as what it is.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: a key is missing, unknown or of another shape, or the vocabulary belongs to
            another model family.
    """
    base = _base_of(folder)
    data = read_json(base / "config.json")
    kinds = [_kind(str(name)) for name in data.get("architectures") or [""]]
    classifies = (kind if kind in kinds else kinds[0]) == "classifier"
    unused = (SCORE,) if len(set(kinds)) > 1 and not classifies else ()
    try:
        config = AutoConfig.for_model(**data)
        auto: Any = AutoModelForSequenceClassification if classifies else AutoModelForCausalLM
        network = auto._model_mapping[type(config)]
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsInvalid(
            f"{base / 'config.json'} does not describe a causal language model or sequence"
            f" classifier in transformers: {error}"
        ) from error
    config.use_cache = False
    settings = differentiable(config, device)
    model = load_network(base, network, settings, device, dtype, unused=unused)
    if base != folder:
        merge_adapter(model, folder)
    tokenizer = load_tokenizer(base)
    ends = (prior.eos_id, _end_of(config, base))
    alignment = Alignment.between(
        prior.tokenizer, tokenizer, prior.vocab_size, ends, device, share_end=not classifies
    )
    if not classifies:
        return LanguageModelReward(model, tokenizer, alignment)
    if not (hasattr(model, "score") and hasattr(model, "model")):
        raise WeightsInvalid(
            f"{type(model).__name__} is not a causal transformer with a score head; only those can"
            " be read as a reward."
        )
    return ClassifierReward(model, tokenizer, alignment, ChatTemplate.of(base))


def merge_adapter(model: nn.Module, folder: Path) -> None:
    """Adds a LoRA adapter (PEFT's files) to the weights of its base; heads stored whole replace the
    base's.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: a tensor does not belong to the base or to LoRA, or a field is absent or not
            supported.
    """
    config = read_json(folder / ADAPTER)
    refused = [field for field in UNSUPPORTED if config.get(field)]
    if config.get("init_lora_weights", True) not in PLAIN_STARTS:
        refused.append("init_lora_weights")
    for field in refused:
        raise WeightsInvalid(
            f"{folder / ADAPTER}: '{field}': {json.dumps(config[field])} is not supported; merge"
            " the adapter into its base first."
        )
    alpha = config.get("lora_alpha")
    if not isinstance(alpha, int | float):
        raise WeightsInvalid(
            f"{folder / ADAPTER}: 'lora_alpha' is {json.dumps(alpha)}, expected a number."
        )
    tensors = load_file(folder / "adapter_model.safetensors")
    parameters = dict(model.named_parameters())
    for key, tensor in tensors.items():
        name = key.removeprefix("base_model.model.")
        part, lora, which = name.partition(".lora_")
        target = parameters.get(f"{part}.weight" if lora else name)
        if target is None or (lora and which not in ("A.weight", "B.weight")):
            raise WeightsInvalid(f"{folder}: the adapter's '{key}' does not fit its base model.")
        if not lora:
            target.data.copy_(tensor)
        elif which == "B.weight":
            down = tensors.get(key.replace("lora_B", "lora_A"))
            if down is None:
                raise WeightsInvalid(f"{folder}: the adapter's '{key}' has no lora_A.")
            rank = len(down)
            scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
            target.data += (scale * tensor.float() @ down.float()).to(target)


def _kind(architecture: str) -> Kind:
    classifies = architecture.endswith("ForSequenceClassification")
    return "classifier" if classifies else "language_model"


def _base_of(folder: Path) -> Path:
    """The folder itself, or the base model's folder if it holds an adapter."""
    if not (folder / ADAPTER).is_file():
        return folder
    named = str(read_json(folder / ADAPTER).get("base_model_name_or_path", ""))
    known = {entry.repo: entry.name for entry in CHECKPOINTS.values()}
    return checkpoint_cache.path(known.get(named, Path(named).name))


def _end_of(config: PretrainedConfig, folder: Path) -> int:
    end: Any = config.eos_token_id
    if isinstance(end, list) and end:
        end = end[0]
    if not isinstance(end, int):
        raise WeightsInvalid(
            f"{folder / 'config.json'}: eos_token_id is {json.dumps(end)}, expected an id."
        )
    return end
