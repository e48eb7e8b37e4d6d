"""Memory of a job per token, computed from the networks' configuration files. Needs no torch.

Besides the weights, a job holds the logits and Adam's state, the decoder's activations saved for
the backward pass, and the prior's working memory. All are proportional to the number of tokens, so
one number of bytes per token describes a prior on a device. The constants were counted on the
networks as they run here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aps_core.checkpoints.metadata import read_json

LOGIT_TABLES = 8
"""Float32 tables (tokens x codes) alive at the same time: logits, their gradient, two of Adam,
softmax, its gradient, windows and their sum.
"""
STOCK_BLOCK = 9.3
"""Tensors that a residual block of stock layers saves for its backward pass. Counted on MAGVIT-v2:
6.45 GiB in float32 at 512x512 pixels.
"""
LEAN_BLOCK, LEAN_MIDDLE = 2, 8
"""The same for our frozen layers, which save only the inputs of normalisations; and for the middle:
two blocks, and attention with queries, keys and values.
"""
ATTENTION_ROWS = 4096
"""Maximum scores per token of a decoder's attention table: the square root of
:data:`aps_core.tokenizers.attention.TABLE`. Every attention layer saves one table.
"""
ATTENTION_PASSING = 2
"""Further attention tables alive at the same time in a backward pass."""
GRADIENTS = 4
"""Further full-size tensors alive at the same time in a backward pass."""
MAGVIT_CHANNELS = 128
MAGVIT_ENCODER: dict[str, Any] = {"ch_mult": (1, 2, 2, 4, 4), "num_res_blocks": (4, 3, 4, 3, 4)}
MAGVIT_DECODER: dict[str, Any] = {"ch_mult": (1, 1, 2, 2, 4), "num_res_blocks": (4, 4, 3, 4, 3)}
"""Shape of the published tokenizer, which its configuration file does not contain."""
VGG16_BYTES = 2630
"""Bytes per pixel of the perceptual term through VGG16 in bfloat16: 1106 saved for the backward
pass, 488 for the target's float32 features, the rest for computing the gradient.
"""
FLOAT = 4


@dataclass(frozen=True)
class Transformer:
    """Dimensions of a transformer that determine its working memory."""

    width: int
    layers: int
    inner: int
    words: int
    heads: int

    def forward_bytes(self, number: int) -> int:
        """Working memory of a forward pass without gradients, per token of the sequence; one layer
        at a time.
        """
        return (6 * self.width + 3 * self.inner) * number

    def backward_bytes(self, number: int, length: int) -> int:
        """Memory of a forward pass with gradients, per token of a sequence of ``length``: every
        layer with its attention tables, and the logits.
        """
        layer = 12 * self.width + 3 * self.inner + self.heads * length
        return self.layers * layer * number + 2 * self.words * FLOAT


def llada(folder: Path) -> Transformer:
    """Dimensions from a LLaDA or MMaDA ``config.json``."""
    return _transformer(
        folder, "d_model", "n_layers", "mlp_hidden_size", "embedding_size", "n_heads"
    )


def language_model(folder: Path) -> Transformer:
    """Dimensions from the ``config.json`` of Dream, a causal language model, or LLaDA, depending on
    its field names.
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


def convolutional_bytes(folder: Path, number: int) -> float:
    """Working memory of a convolutional prior's forward pass without gradients, per token; one
    block at a time.
    """
    config = read_json(folder / "config.json")
    numbers = (4 + int(config["expansion"])) * int(config["width"]) / int(config["patch"]) ** 2
    return numbers * number


def denoiser_bytes(folder: Path, number: int) -> float:
    """Working memory of a denoiser's forward pass without gradients, per pixel: the tensors of half
    the resolution that are alive in a block, and the one kept for later.
    """
    return 5 * int(read_json(folder / "config.json")["widths"][0]) / 4 * number


@dataclass(frozen=True)
class Decoder:
    """Memory of a convolutional decoder or encoder while it is differentiated, in numbers per
    pixel.
    """

    saved: float
    """Activations saved for the backward pass."""
    widest: float
    """The largest single tensor."""
    attentions: int = 1
    """Number of attention layers over all tokens."""


def magvit_decoder(folder: Path) -> Decoder:
    """Decoder of a MAGVIT-v2 folder with frozen layers (:mod:`aps_core.tokenizers.frozen`)."""
    return _magvit(folder, "decoder", MAGVIT_DECODER)


def magvit_encoder_bytes(folder: Path, number: int) -> float:
    """Bytes per pixel of the perceptual term through the encoder of a MAGVIT-v2 folder."""
    encoder = _magvit(folder, "encoder", MAGVIT_ENCODER)
    return (encoder.saved + encoder.widest) * number


def _magvit(folder: Path, part: str, published: dict[str, Any]) -> Decoder:
    """Encoder or decoder: the first block of a level reads the previous level's output."""
    config = read_json(folder / "config.json")
    shape = config.get(part, published)
    width = int(config.get(f"{part}_ch") or config.get("ch", MAGVIT_CHANNELS))
    area = int(config.get("patch", 1)) ** 2
    levels = [
        (width * mult, count, area * 4**level)
        for level, (mult, count) in enumerate(
            zip(shape["ch_mult"], shape["num_res_blocks"], strict=True)
        )
    ]
    top, _, coarsest = levels[-1]
    saved = LEAN_MIDDLE * top / coarsest
    if part == "decoder":
        saved += levels[0][0] / area  # the last normalisation's input
        levels.reverse()
        before = top
    else:
        saved += top / coarsest
        before = width
    for channels, count, pixels in levels:
        saved += (before + (LEAN_BLOCK * count - 1) * channels) / pixels
        before = channels
    return Decoder(saved, width * shape["ch_mult"][0] / area)


PIXEL_DECODER = Decoder(saved=12, widest=6, attentions=0)
"""Of :class:`aps_core.tokenizers.pixels.PixelTokenizer`, which has no layers."""


def vqmodel_decoder(folder: Path) -> Decoder:
    """Decoder of a diffusers ``VQModel`` folder with stock layers; it has one block more per level
    than the encoder.
    """
    config = read_json(folder / "config.json")
    widths, count = config["block_out_channels"], int(config["layers_per_block"]) + 1
    attending = sum(kind.startswith("Attn") for kind in config["up_block_types"])
    return Decoder(
        STOCK_BLOCK * sum(width * count / 4**level for level, width in enumerate(widths)),
        float(widths[0]),
        1 + attending * count,
    )


def image_token_bytes(
    decoder: Decoder, codes: int, stride: int, forward: float, number: int
) -> int:
    """Bytes per token of a picture job.

    Args:
        decoder: memory of the tokenizer's decoder per pixel.
        codes: codebook size K.
        stride: pixels per token along one axis.
        forward: working memory of the prior per token, in bytes.
        number: bytes of one number in the decoder.
    """
    pixels = stride**2 * (decoder.saved + GRADIENTS * decoder.widest) * number
    alive = decoder.attentions + ATTENTION_PASSING if decoder.attentions else 0
    tables = alive * ATTENTION_ROWS * number
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
