"""MMaDA: a LLaDA (bidirectional Llama) transformer over text and image tokens.

The network is transformers' Llama with ``is_causal=False``; checkpoints keep their published key
names. Prompt layout, guidance and token ids follow the MMaDA release. The same code runs the
published 8B model and the embedded prior, which differ by ``config.json`` only.

Shapes: B samples, L image tokens, K image codes, S sequence length, W windows.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from tokenizers import Tokenizer as TextTokenizer
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from aps_core.errors import WeightsInvalid
from aps_core.types import MASK, Grid, Tokenizer
from aps_core.weights import read_json, read_tensors

WINDOWS_AT_ONCE = 8
"""Windows of a large picture that go through the network together: bounds memory, not results."""


class Layout(BaseModel):
    """Token ids and prompt layout; the defaults are the published MMaDA-8B's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image_offset: int = 126349  # = len(text tokenizer), not the width of its embedding table
    codebook_size: int = 8192
    mask: int = 126336
    t2i: int = 126088
    bos: int = 126080
    eos: int = 126081
    soi: int = 126084
    eoi: int = 126085
    max_text_len: int = 512
    native_grid: Grid = (32, 32)

    def text_block(self, text_ids: list[int]) -> list[int]:
        """``<|t2i|> bos text eos``, cut to ``max_text_len + 1`` ids with eos last."""
        ids = text_ids if text_ids[:1] == [self.bos] else [self.bos, *text_ids]
        block = [self.t2i, *ids, self.eos]
        return block if len(block) <= self.max_text_len + 1 else [*block[: self.max_text_len], self.eos]


class MMaDAConfig(BaseModel):
    """The fields of a LLaDA ``config.json`` that shape the network."""

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
    layout: Layout = Layout()

    def llama(self) -> LlamaConfig:
        """The same network in transformers' terms."""
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


class MMaDAPrior:
    """See :class:`aps_core.types.Prior`."""

    def __init__(self, model: LlamaForCausalLM, config: MMaDAConfig, tokenizer: Tokenizer, text_tokenizer: TextTokenizer) -> None:
        self.model = model.eval().requires_grad_(False)
        self.layout = config.layout
        self.tokenizer = tokenizer
        self.text_tokenizer = text_tokenizer
        offset = self.layout.image_offset
        self.head_KD = model.lm_head.weight[offset : offset + self.layout.codebook_size]

    @torch.no_grad()
    def logits(self, z_BL: Tensor, *, grid: Grid, mask_fraction: float, condition: str, guidance_scale: float) -> Tensor:
        """Guided logits (B, L, K), float32. A grid unlike the native one is seen through overlapping
        native windows whose log-probabilities are averaged; beyond the picture they see mask tokens."""
        if grid == self.layout.native_grid:
            return self._guided(z_BL, condition, guidance_scale)
        batch, (gh, gw), (wh, ww) = len(z_BL), grid, self.layout.native_grid
        z_BHW = z_BL.view(batch, gh, gw)
        padded = torch.nn.functional.pad(z_BHW, (0, max(0, ww - gw), 0, max(0, wh - gh)), value=MASK)
        # Seams move from step to step because the shift follows the number of decided tokens.
        shift = int((z_BL[0] != MASK).sum())
        corners = list(product(window_starts(gh, wh, shift), window_starts(gw, ww, shift)))
        total = torch.zeros(batch, *padded.shape[1:], self.layout.codebook_size, device=z_BL.device)
        seen = torch.zeros(padded.shape[1:], device=z_BL.device)
        for first in range(0, len(corners), WINDOWS_AT_ONCE):
            some = corners[first : first + WINDOWS_AT_ONCE]
            windows = torch.cat([padded[:, t : t + wh, left : left + ww].reshape(batch, -1) for t, left in some])
            log_p = self._guided(windows, condition, guidance_scale).log_softmax(-1).view(len(some), batch, wh, ww, -1)
            for (t, left), window in zip(some, log_p, strict=True):
                total[:, t : t + wh, left : left + ww] += window
                seen[t : t + wh, left : left + ww] += 1
        return (total / seen[..., None])[:, :gh, :gw].reshape(batch, gh * gw, -1)

    def _guided(self, z_BL: Tensor, condition: str, guidance_scale: float) -> Tensor:
        """``(1 + g) cond - g uncond``, combined before the head, which is linear: one head product, and half the logits."""
        hidden_BLD = self._hidden(z_BL, condition)
        if condition and guidance_scale != 0:  # two calls: their texts, so their lengths, differ
            hidden_BLD = (1 + guidance_scale) * hidden_BLD.float() - guidance_scale * self._hidden(z_BL, "").float()
        logits_BLK: Tensor = (hidden_BLD.to(self.head_KD.dtype) @ self.head_KD.T).float()
        return logits_BLK

    def _hidden(self, z_BL: Tensor, condition: str) -> Tensor:
        """Final hidden states (B, L, D) of the image tokens. No mask is passed, so attention takes the flash kernel."""
        hidden_BSD = self.model.model(input_ids=self.sequence(z_BL, condition), use_cache=False).last_hidden_state
        return hidden_BSD[:, -(z_BL.shape[1] + 1) : -1]  # type: ignore[no-any-return]

    def sequence(self, z_BL: Tensor, condition: str) -> Tensor:
        """Token ids (B, S): text block, soi, image, eoi. The published left padding is left out: it is
        masked, and rotary attention depends on distances only."""
        layout = self.layout
        text = self.text_tokenizer.encode(condition, add_special_tokens=False).ids if condition else []
        before = torch.tensor([*layout.text_block(text), layout.soi], device=z_BL.device).expand(len(z_BL), -1)
        image = torch.where(z_BL == MASK, layout.mask, z_BL + layout.image_offset)
        return torch.cat([before, image, image.new_full((len(z_BL), 1), layout.eoi)], dim=1)


def window_starts(length: int, window: int, shift: int) -> list[int]:
    """First positions of windows covering ``length`` with at least a quarter overlap; ``shift`` moves the inner ones."""
    stride = window * 3 // 4
    last = max(0, length - window)
    return sorted({min(max(start, 0), last) for start in range(-(shift % stride), length, stride)})


def read_config(folder: Path) -> MMaDAConfig:
    """Reads a checkpoint folder's ``config.json``.

    Raises:
        WeightsMissing, WeightsInvalid: the file is absent, or a field is missing or wrong.
    """
    data: dict[str, Any] = read_json(folder / "config.json")
    try:
        return MMaDAConfig.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise WeightsInvalid(f"{folder / 'config.json'}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def load_mmada(folder: Path, tokenizer: Tokenizer, device: torch.device, dtype: torch.dtype) -> MMaDAPrior:
    """Loads an MMaDA checkpoint folder: ``config.json``, ``model.safetensors``, ``tokenizer.json``.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: a key is missing, unknown, or of another shape.
    """
    config = read_config(folder)
    with torch.device("meta"):
        model = LlamaForCausalLM(config.llama())
    names = {published_key(key): key for key in model.state_dict()}
    shapes = {theirs: model.state_dict()[ours].shape for theirs, ours in names.items()}
    tensors = read_tensors(folder / "model.safetensors", shapes)
    model.load_state_dict({names[key]: value.to(device, dtype) for key, value in tensors.items()}, assign=True)
    # Rotary tables are derived, not stored: build them off the meta device.
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config).to(device)
    text_file = folder / "tokenizer.json"
    read_json(text_file)
    return MMaDAPrior(model, config, tokenizer, TextTokenizer.from_file(str(text_file)))
