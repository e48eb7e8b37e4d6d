"""Priors of any size with random weights, for measuring speed and memory only."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from tokenizers import Tokenizer as TextTokenizer
from tokenizers import models, pre_tokenizers
from torch import nn
from transformers import (
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from aps_core.checkpoints.files import EMBEDDED
from aps_core.checkpoints.metadata import read_config, read_json
from aps_core.objectives.perceptual import tokenizer_features
from aps_core.objectives.vgg16_net import VGG16
from aps_core.priors.dream.network import DreamConfig
from aps_core.priors.mmada.network import Layout, MMaDAConfig, MMaDAPrior
from aps_core.text.masked_lm import MaskedLM
from aps_core.text.rewards.alignment import Alignment
from aps_core.text.rewards.language_model import LanguageModelReward
from aps_core.tokenizers.execution import ExecutionPlan
from aps_core.tokenizers.magvit2 import MagvitTokenizer
from aps_core.tokenizers.magvit2_net import LevelConfig, Magvit2, MagvitConfig
from aps_core.types import Features, Grid
from benchmarks.load import DREAM_LAYERS, dream_config

EMBEDDED_LEVEL = LevelConfig(ch_mult=(1,), num_res_blocks=(4,))
TOKENIZERS = {
    "published": MagvitConfig(),
    "embedded": MagvitConfig(
        ch=160,
        z_channels=12,
        codebook_dim=12,
        patch=4,
        encoder=EMBEDDED_LEVEL,
        decoder=EMBEDDED_LEVEL,
    ),
}
"""Shapes of ``showlab/magvitv2`` and of the tokenizer shipped with the package."""

QWEN3_06B: dict[str, Any] = {
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "tie_word_embeddings": True,
}

Term = Literal["none", "vgg16", "tokenizer"]
"""Features of the perceptual term."""
TERMS: tuple[Term, ...] = get_args(Term)


def tokenizer(
    network: str, device: torch.device, dtype: torch.dtype, plan: ExecutionPlan | None = None
) -> MagvitTokenizer:
    """Creates a MAGVIT-v2 tokenizer with PyTorch's default initialisation."""
    torch.manual_seed(0)
    with torch.device(device):
        return MagvitTokenizer(Magvit2(TOKENIZERS[network]).to(dtype), plan)


def features(
    term: Term, parts: MagvitTokenizer, device: torch.device, dtype: torch.dtype
) -> Features | None:
    """The perceptual term's extractor; VGG16 with PyTorch's initialisation."""
    if term == "tokenizer":
        return tokenizer_features(parts)
    if term == "none":
        return None
    torch.manual_seed(0)
    with torch.device(device):
        net = VGG16().to(dtype)
    net.mean, net.std = net.mean.to(device), net.std.to(device)
    return net.eval().requires_grad_(False)


def prior(
    network: str, grid: Grid, whole: bool, parts: MagvitTokenizer, device: torch.device
) -> MMaDAPrior:
    """Creates an MMaDA prior in bfloat16.

    With ``whole``, it processes the grid as one sequence, otherwise in windows of its native size.
    """
    bits = TOKENIZERS[network].codebook_dim
    native = grid if whole else (32, 32)
    if network == "published":
        layout = Layout(native_grid=native)
        config = _config(4096, 32, 32, 12288, 134656, layout)
    else:
        ids = dict(zip(("mask", "t2i", "bos", "eos", "soi", "eoi"), range(1024, 1030), strict=True))
        layout = Layout(
            image_offset=1031, codebook_size=2**bits, native_grid=native, max_text_len=32, **ids
        )
        config = _config(192, 6, 4, 512, 1031 + 2**bits, layout)
    with torch.device("meta"):
        model = LlamaForCausalLM(config.llama())
        # as after loading: only the rows of image codes
        model.lm_head = nn.Linear(config.d_model, layout.codebook_size, bias=False)
    filled(model, device)
    return MMaDAPrior(model, model.lm_head.weight, config, parts, words(5))


def filled(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """Materialises a language model with frozen random bfloat16 weights on ``device``."""
    nn.Module.to(model, torch.bfloat16).to_empty(device=device)
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.normal_(0, 0.02)
        elif isinstance(weight := getattr(module, "weight", None), nn.Parameter):
            weight.data.fill_(1)
        if isinstance(bias := getattr(module, "bias", None), nn.Parameter):
            bias.data.zero_()
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config).to(device)
    model.eval().requires_grad_(False)
    return model


def words(count: int) -> TextTokenizer:
    """Creates a tokenizer with ``count`` words split at whitespace, including "Yes" and "No".
    Unknown words map to "word".
    """
    names = ["<end>", "<mask>", "word", "Yes", "No", *(f"w{i}" for i in range(5, count))]
    text = TextTokenizer(
        models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="word")
    )
    text.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return text


def guided_text(network: str, device: torch.device) -> tuple[MaskedLM, LanguageModelReward]:
    """Creates models with the shapes of Dream-7B and Qwen3-0.6B, or of the embedded models."""
    if network == "published":
        prior_config, reward_config, end = (
            dream_config(3584, DREAM_LAYERS),
            Qwen3Config(**QWEN3_06B),
            151645,
        )
    else:
        folder = EMBEDDED / "text"
        prior_config, end = read_config(folder / "prior", DreamConfig), 0
        reward_config = Qwen3Config(**read_json(folder / "reward" / "config.json"))
    with torch.device("meta"):
        dream, qwen3 = Qwen2ForCausalLM(prior_config.qwen2()), Qwen3ForCausalLM(reward_config)
    text = words(min(prior_config.vocab_size, reward_config.vocab_size))
    lm = MaskedLM(filled(dream, device), prior_config, text, shifted=True)
    ends = (prior_config.eos_token_id, end)
    alignment = Alignment.between(text, text, prior_config.vocab_size, ends, device, share_end=True)
    return lm, LanguageModelReward(filled(qwen3, device), text, alignment)


def _config(
    width: int, heads: int, layers: int, mlp: int, vocabulary: int, layout: Layout
) -> MMaDAConfig:
    return MMaDAConfig(
        d_model=width,
        n_heads=heads,
        n_kv_heads=heads,
        n_layers=layers,
        mlp_hidden_size=mlp,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        embedding_size=vocabulary,
        max_sequence_length=8192,
        layout=layout,
    )
