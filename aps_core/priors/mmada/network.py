"""MMaDA: a LLaDA (bidirectional Llama) transformer over text and image tokens.

The network is transformers' Llama with ``is_causal=False``; checkpoints keep their published key
names. Prompt layout, guidance and token ids follow the MMaDA release. The same code runs the
published 8B model and the embedded prior, which differ by ``config.json`` only.

Shapes: B samples, L image tokens, K image codes, S sequence length, W windows.
"""

from __future__ import annotations

from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict
from tokenizers import Tokenizer as TextTokenizer
from torch import Tensor
from transformers import LlamaForCausalLM

from aps_core.checkpoints.metadata import read_config
from aps_core.checkpoints.networks import load_network, load_tokenizer
from aps_core.errors import WeightsInvalid
from aps_core.priors.llada.network import LLaDANetwork, published_key
from aps_core.sampling.windows import windowed_logits
from aps_core.types import MASK, Grid, Tokenizer


class Layout(BaseModel):
    """Token ids and prompt layout. Defaults are the published MMaDA-8B's."""

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
        """``<|t2i|> bos text eos``, truncated to ``max_text_len + 1`` ids ending with eos."""
        ids = text_ids if text_ids[:1] == [self.bos] else [self.bos, *text_ids]
        block = [self.t2i, *ids, self.eos]
        return (
            block
            if len(block) <= self.max_text_len + 1
            else [*block[: self.max_text_len], self.eos]
        )


class MMaDAConfig(LLaDANetwork):
    """An MMaDA ``config.json``: LLaDA's network and the sequence layout."""

    layout: Layout = Layout()


class MMaDAPrior:
    """Implements :class:`aps_core.types.Prior` with an MMaDA network."""

    def __init__(
        self,
        model: LlamaForCausalLM,
        head_KD: Tensor,
        config: MMaDAConfig,
        tokenizer: Tokenizer,
        text_tokenizer: TextTokenizer,
        whole_tokens: int = 0,
    ) -> None:
        """``head_KD``: rows of the output head for the image codes; ``whole_tokens``: see
        :func:`aps_core.sampling.windows.windowed_logits`.
        """
        self.model = model.eval().requires_grad_(False)
        self.head_KD = head_KD
        self.layout = config.layout
        self.tokenizer = tokenizer
        self.text_tokenizer = text_tokenizer
        self.whole_tokens = whole_tokens

    @torch.no_grad()
    def logits(
        self,
        z_BL: Tensor,
        *,
        grid: Grid,
        mask_fraction: float,
        condition: str,
        guidance_scale: float,
    ) -> Tensor:
        """Guided logits (B, L, K), float32.

        Grids other than the native one with more than ``whole_tokens`` tokens are evaluated in
        overlapping native windows; see :func:`aps_core.sampling.windows.windowed_logits`.
        """
        layout = self.layout
        return windowed_logits(
            z_BL,
            grid,
            layout.native_grid,
            layout.codebook_size,
            lambda z: self._guided(z, condition, guidance_scale),
            self.whole_tokens,
        )

    def _guided(self, z_BL: Tensor, condition: str, guidance_scale: float) -> Tensor:
        """``(1 + g) cond - g uncond``, computed before the head. As the head is linear, this needs
        one head product and half the logits.
        """
        hidden_BLD = self._hidden(z_BL, condition)
        if condition and guidance_scale != 0:  # two calls, because the texts have different lengths
            hidden_BLD = (1 + guidance_scale) * hidden_BLD.float() - guidance_scale * self._hidden(
                z_BL, ""
            ).float()
        logits_BLK: Tensor = (hidden_BLD.to(self.head_KD.dtype) @ self.head_KD.T).float()
        return logits_BLK

    def _hidden(self, z_BL: Tensor, condition: str) -> Tensor:
        """Final hidden states (B, L, D) of the image tokens. Without an attention mask, the flash
        kernel is used.
        """
        hidden_BSD = self.model.model(
            input_ids=self.sequence(z_BL, condition), use_cache=False
        ).last_hidden_state
        return hidden_BSD[:, -(z_BL.shape[1] + 1) : -1]  # type: ignore[no-any-return]

    def sequence(self, z_BL: Tensor, condition: str) -> Tensor:
        """Token ids (B, S): text block, soi, image, eoi.

        The published left padding is omitted. It is masked out, and rotary attention depends on
        distances only.
        """
        layout = self.layout
        text = (
            self.text_tokenizer.encode(condition, add_special_tokens=False).ids if condition else []
        )
        before = torch.tensor([*layout.text_block(text), layout.soi], device=z_BL.device).expand(
            len(z_BL), -1
        )
        image = torch.where(z_BL == MASK, layout.mask, z_BL + layout.image_offset)
        return torch.cat([before, image, image.new_full((len(z_BL), 1), layout.eoi)], dim=1)


def load_mmada(
    folder: Path,
    tokenizer: Tokenizer,
    device: torch.device,
    dtype: torch.dtype,
    whole_tokens: int = 0,
) -> MMaDAPrior:
    """Loads an MMaDA checkpoint folder, published or embedded: ``config.json``, safetensors,
    ``tokenizer.json``.

    Only the image codes' rows of the output head are read. With its text rows, the head is a tenth
    of the published network.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: a field or key is missing, unknown, or of another shape, or the layout does
            not fit tokenizer or network.
    """
    config = read_config(folder, MMaDAConfig)
    layout, codes = config.layout, len(tokenizer.codebook_KD)
    if layout.codebook_size != codes or layout.image_offset + codes > config.embedding_size:
        raise WeightsInvalid(
            f"{folder}: {layout.codebook_size} image codes from id {layout.image_offset} on, but"
            f" the image tokenizer has {codes} codes and the network {config.embedding_size} ids."
        )
    image_rows = slice(layout.image_offset, layout.image_offset + codes)
    model = load_network(
        folder, LlamaForCausalLM, config.llama(), device, dtype, published_key, head_rows=image_rows
    )
    return MMaDAPrior(
        model, model.lm_head.weight, config, tokenizer, load_tokenizer(folder), whole_tokens
    )
