"""Memory of a job per token, from the networks' configuration files. Needs no torch.

A job holds, beside the weights: the logits and what Adam keeps of them, the decoder's activations
saved for the backward pass, and the prior's working memory. All grow with the number of tokens, so
that one number, bytes per token, describes a prior on a device. The constants are counts for the
networks as they run here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aps_core.checkpoints.files import read_json

LOGIT_TABLES = 8
"""Float32 tables (tokens x codes) alive at once: logits, their gradient, two of Adam, softmax, its
gradient, windows, their sum.
"""
STOCK_BLOCK = 9.3
"""Tensors a residual block of stock layers keeps for its backward pass: counted on MAGVIT-v2, 6.45
GiB in float32 at 512x512 pixels.
"""
LEAN_BLOCK, LEAN_MIDDLE = 2, 8
"""The same of our frozen layers, the inputs of the normalisations alone; and of the middle: two
blocks and attention with its queries, keys, values.
"""
ATTENTION_ROWS = 4096
"""Scores per token of an attention table in a decoder, at most: the square root of
:data:`aps_core.tokenizers.attention.TABLE`. Every layer keeps one table.
"""
ATTENTION_PASSING = 2
"""Tables of a backward pass alive at once beside them."""
GRADIENTS = 4
"""Full-size tensors of the backward pass alive at once beside them."""
MAGVIT_CHANNELS = 128
MAGVIT_DECODER: dict[str, Any] = {"ch_mult": (1, 1, 2, 2, 4), "num_res_blocks": (4, 4, 3, 4, 3)}
"""Shape of the published tokenizer, whose configuration file does not tell it."""
FLOAT = 4


@dataclass(frozen=True)
class Transformer:
    """What of a transformer's shape matters for its working memory."""

    width: int
    layers: int
    inner: int
    words: int
    heads: int

    def forward_bytes(self, number: int) -> int:
        """Working memory of a forward pass without gradients, per token of the sequence: one
        layer.
        """
        return (6 * self.width + 3 * self.inner) * number

    def backward_bytes(self, number: int, length: int) -> int:
        """Memory of a forward pass whose gradients are wanted, per token of a sequence of
        ``length``: every layer with its attention tables, and the logits.
        """
        layer = 12 * self.width + 3 * self.inner + self.heads * length
        return self.layers * layer * number + 2 * self.words * FLOAT


def llada(folder: Path) -> Transformer:
    """The shape in a LLaDA or MMaDA ``config.json``."""
    return _transformer(
        folder, "d_model", "n_layers", "mlp_hidden_size", "embedding_size", "n_heads"
    )


def language_model(folder: Path) -> Transformer:
    """The shape in the ``config.json`` of Dream and of causal language models; LLaDA's where its
    names are found.
    """
    if "d_model" in read_json(folder / "config.json"):
        return llada(folder)
    return _transformer(
        folder,
        "hidden_size",
        "num_hidden_layers",
        "intermediate_size",
        "vocab_size",
        "num_attention_heads",
    )


@dataclass(frozen=True)
class Decoder:
    """What an image decoder holds while it is differentiated, in numbers per pixel."""

    saved: float
    """Kept from the forward pass for the backward pass."""
    widest: float
    """One tensor at full size."""
    attentions: int = 1
    """Attention layers over all tokens."""


def magvit_decoder(folder: Path) -> Decoder:
    """Of a MAGVIT-v2 folder, with frozen layers (:mod:`aps_core.tokenizers.frozen`)."""
    config = read_json(folder / "config.json")
    decoder = config.get("decoder", MAGVIT_DECODER)
    width = int(config.get("decoder_ch") or config.get("ch", MAGVIT_CHANNELS))
    area = int(config.get("patch", 1)) ** 2
    levels = [
        (width * mult, count, area * 4**level)
        for level, (mult, count) in enumerate(
            zip(decoder["ch_mult"], decoder["num_res_blocks"], strict=True)
        )
    ]
    above, _, coarsest = levels[-1]
    saved = LEAN_MIDDLE * above / coarsest + levels[0][0] / area  # and the last normalisation
    for channels, count, pixels in reversed(levels):
        saved += (
            above + (LEAN_BLOCK * count - 1) * channels
        ) / pixels  # the first block reads what the level above gave
        above = channels
    return Decoder(saved, levels[0][0] / area)


def vqmodel_decoder(folder: Path) -> Decoder:
    """The same of a diffusers ``VQModel`` folder, stock layers; its decoder has one block more a
    level than its encoder.
    """
    config = read_json(folder / "config.json")
    widths, count = config["block_out_channels"], int(config["layers_per_block"]) + 1
    attending = sum(kind.startswith("Attn") for kind in config["up_block_types"])
    return Decoder(
        STOCK_BLOCK * sum(width * count / 4**level for level, width in enumerate(widths)),
        float(widths[0]),
        1 + attending * count,
    )


def image_token_bytes(decoder: Decoder, codes: int, stride: int, forward: int, number: int) -> int:
    """Bytes per token of a picture job. ``forward``: working memory of the prior; ``number``: bytes
    of one number in the decoder.
    """
    pixels = stride**2 * (decoder.saved + GRADIENTS * decoder.widest) * number
    tables = (decoder.attentions + ATTENTION_PASSING) * ATTENTION_ROWS * number
    return int(pixels + tables + LOGIT_TABLES * FLOAT * codes + forward)


def text_token_bytes(
    prior: Transformer, rewards: Sequence[Transformer], number: int, length: int
) -> int:
    """Bytes per token of a text job of at most ``length`` tokens."""
    return (
        LOGIT_TABLES * FLOAT * prior.words
        + prior.forward_bytes(number)
        + sum(reward.backward_bytes(number, length) for reward in rewards)
    )


def _transformer(folder: Path, *fields: str) -> Transformer:
    config = read_json(folder / "config.json")
    return Transformer(*(int(config[field]) for field in fields))
