"""Priors of any size with random weights: right for speed and memory, meaningless as pictures."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer as TextTokenizer
from tokenizers import models, pre_tokenizers
from torch import nn
from transformers import LlamaForCausalLM

from aps_core.priors.mmada import Layout, MMaDAConfig, MMaDAPrior
from aps_core.tokenizers.execution import ExecutionPlan
from aps_core.tokenizers.magvit2 import MagvitTokenizer
from aps_core.tokenizers.magvit2_net import LevelConfig, Magvit2, MagvitConfig
from aps_core.types import Grid

EMBEDDED_LEVEL = LevelConfig(ch_mult=(1,), num_res_blocks=(4,))
TOKENIZERS = {
    "published": MagvitConfig(),
    "embedded": MagvitConfig(ch=160, z_channels=12, codebook_dim=12, patch=4, encoder=EMBEDDED_LEVEL, decoder=EMBEDDED_LEVEL),
}
"""Shapes of ``showlab/magvitv2`` and of the tokenizer shipped with the package."""

DECODER_GB_PER_PIXEL = {"published": 11.0 / 512**2, "embedded": None}
"""Fused bfloat16 traffic of forward and backward pass, counted per layer: each tensor once in, once out (benchmarks/README.md)."""


def tokenizer(network: str, device: torch.device, dtype: torch.dtype, plan: ExecutionPlan | None = None) -> MagvitTokenizer:
    """A MAGVIT-v2 tokenizer with PyTorch's initialisation."""
    torch.manual_seed(0)
    with torch.device(device):
        return MagvitTokenizer(Magvit2(TOKENIZERS[network]).to(dtype), plan)


def prior(network: str, grid: Grid, whole: bool, parts: MagvitTokenizer, device: torch.device) -> MMaDAPrior:
    """An MMaDA prior, bfloat16. ``whole`` shows it the grid as one sequence, else in windows of its native size."""
    bits = TOKENIZERS[network].codebook_dim
    native = grid if whole else (32, 32)
    if network == "published":
        layout = Layout(native_grid=native)
        config = _config(4096, 32, 32, 12288, 134656, layout)
    else:
        ids = dict(zip(("mask", "t2i", "bos", "eos", "soi", "eoi"), range(1024, 1030), strict=True))
        layout = Layout(image_offset=1031, codebook_size=2**bits, native_grid=native, max_text_len=32, **ids)
        config = _config(192, 6, 4, 512, 1031 + 2**bits, layout)
    with torch.device("meta"):
        model = LlamaForCausalLM(config.llama())
        model.lm_head = nn.Linear(config.d_model, layout.codebook_size, bias=False)  # as loaded: the image codes' rows alone
    nn.Module.to(model, torch.bfloat16).to_empty(device=device)
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.normal_(0, 0.02)
        elif isinstance(weight := getattr(module, "weight", None), nn.Parameter):
            weight.data.fill_(1)
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config).to(device)
    text = TextTokenizer(models.WordLevel({"word": 1}, unk_token="word"))
    text.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return MMaDAPrior(model, model.lm_head.weight, config, parts, text)


def _config(width: int, heads: int, layers: int, mlp: int, vocabulary: int, layout: Layout) -> MMaDAConfig:
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
