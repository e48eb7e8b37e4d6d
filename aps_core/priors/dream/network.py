"""Dream: a masked diffusion language model with Qwen2.5's architecture
(``Dream-org/Dream-v0-Instruct-7B``).

The network is transformers' Qwen2 with ``is_causal=False``; checkpoints use Qwen2's key names.
Dream was adapted from an autoregressive model, so its output at a position predicts the *next*
token. The same code runs the published 7B model and the embedded text prior, which differ only in
``config.json``.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from aps_core.checkpoints.metadata import read_config
from aps_core.checkpoints.networks import load_network, load_tokenizer
from aps_core.text.chat import TextIds
from aps_core.text.masked_lm import MaskedLM


class DreamConfig(TextIds):
    """Fields of a Dream ``config.json`` that define the network."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool = False

    def qwen2(self) -> Qwen2Config:
        """The same network as a transformers configuration."""
        config = Qwen2Config(
            **self.model_dump(exclude={"rope_theta", *TextIds.model_fields} - {"vocab_size"}),
            rope_parameters={"rope_type": "default", "rope_theta": self.rope_theta},
            use_cache=False,
        )
        config.is_causal = False
        return config


def load_dream(folder: Path, device: torch.device, dtype: torch.dtype) -> MaskedLM:
    """Loads a Dream checkpoint folder: ``config.json``, ``model.safetensors`` and the tokenizer's
    files.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: a field or key is missing, unknown, or of another shape.
    """
    config = read_config(folder, DreamConfig)
    model = load_network(folder, Qwen2ForCausalLM, config.qwen2(), device, dtype)
    return MaskedLM(model, config, load_tokenizer(folder), shifted=True)
