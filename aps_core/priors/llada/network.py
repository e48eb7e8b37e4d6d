"""LLaDA: a masked diffusion language model with Llama's architecture
(``GSAI-ML/LLaDA-8B-Instruct``).

The network is transformers' Llama with ``is_causal=False`` under LLaDA's published key names. MMaDA
is this network with added image tokens (:mod:`aps_core.priors.mmada.network`).
"""

from __future__ import annotations

from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict
from transformers import LlamaConfig, LlamaForCausalLM

from aps_core.checkpoints.metadata import read_config
from aps_core.checkpoints.networks import load_network, load_tokenizer
from aps_core.text.chat import LLaDAIds
from aps_core.text.masked_lm import MaskedLM


class LLaDANetwork(BaseModel):
    """Fields of a LLaDA ``config.json`` that define the network."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    d_model: int
    n_heads: int
    n_kv_heads: int
    n_layers: int
    mlp_hidden_size: int
    rms_norm_eps: float
    rope_theta: float
    embedding_size: int
    max_sequence_length: int

    def llama(self) -> LlamaConfig:
        """The same network as a transformers configuration."""
        config = LlamaConfig(
            vocab_size=self.embedding_size,
            hidden_size=self.d_model,
            intermediate_size=self.mlp_hidden_size,
            num_hidden_layers=self.n_layers,
            num_attention_heads=self.n_heads,
            num_key_value_heads=self.n_kv_heads,
            rms_norm_eps=self.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": self.rope_theta},
            max_position_embeddings=self.max_sequence_length,
            tie_word_embeddings=False,
            use_cache=False,
        )
        config.is_causal = False
        return config


class LLaDAConfig(LLaDANetwork, LLaDAIds):
    """A LLaDA ``config.json``."""


def published_key(key: str) -> str:
    """Name of a Llama parameter in LLaDA and MMaDA checkpoints."""
    for ours, theirs in (
        ("model.embed_tokens", "model.transformer.wte"),
        ("model.layers.", "model.transformer.blocks."),
        ("lm_head", "model.transformer.ff_out"),
        ("model.norm", "model.transformer.ln_f"),
        ("input_layernorm", "attn_norm"),
        ("self_attn.o_proj", "attn_out"),
        ("self_attn.", ""),
        ("post_attention_layernorm", "ff_norm"),
        ("mlp.gate_proj", "ff_proj"),
        ("mlp.up_proj", "up_proj"),
        ("mlp.down_proj", "ff_out"),
    ):
        key = key.replace(ours, theirs)
    return key


def load_llada(folder: Path, device: torch.device, dtype: torch.dtype) -> MaskedLM:
    """Loads a LLaDA checkpoint folder as a text prior: ``config.json``, ``model.safetensors``,
    ``tokenizer.json``.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: a field or key is missing, unknown, or of another shape.
    """
    config = read_config(folder, LLaDAConfig)
    model = load_network(folder, LlamaForCausalLM, config.llama(), device, dtype, published_key)
    return MaskedLM(model, config, load_tokenizer(folder), shifted=False)
