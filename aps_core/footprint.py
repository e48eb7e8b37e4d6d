"""Memory of a job per token, from the networks' configuration files. Needs no torch.

A job holds, beside the weights: the logits and what Adam keeps of them, the decoder's activations saved for
the backward pass, and the prior's working memory. All grow with the number of tokens, so that one number,
bytes per token, describes a prior on a device. The constants are counts for the networks as they run here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aps_core.weights import read_json

LOGIT_TABLES = 8
"""Float32 tables (tokens x codes) alive at once: logits, their gradient, two of Adam, softmax, its gradient, windows, their sum."""
SAVED_PER_CHANNEL = 9.3
"""Numbers a decoder saves for its backward pass, per channel and residual block: 6.45 GiB in float32 at 512x512 pixels with MAGVIT-v2."""
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

    def forward_bytes(self, number: int) -> int:
        """Working memory of a forward pass without gradients, per token of the sequence: one layer."""
        return (6 * self.width + 3 * self.inner) * number

    def backward_bytes(self, number: int) -> int:
        """Memory of a forward pass whose gradients are wanted, per token: every layer, and the logits."""
        return self.layers * (12 * self.width + 3 * self.inner) * number + 2 * self.words * FLOAT


def llada(folder: Path) -> Transformer:
    """The shape in a LLaDA or MMaDA ``config.json``."""
    return _transformer(folder, "d_model", "n_layers", "mlp_hidden_size", "embedding_size")


def language_model(folder: Path) -> Transformer:
    """The shape in the ``config.json`` of Dream and of causal language models; LLaDA's where its names are found."""
    if "d_model" in read_json(folder / "config.json"):
        return llada(folder)
    return _transformer(folder, "hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")


def magvit_channels(folder: Path) -> tuple[float, float]:
    """Of a MAGVIT-v2 folder: channels x residual blocks of the decoder per pixel, and channels at full size per pixel."""
    config = read_json(folder / "config.json")
    decoder = config.get("decoder", MAGVIT_DECODER)
    width, patch = int(config.get("ch", MAGVIT_CHANNELS)), int(config.get("patch", 1))
    levels = zip(decoder["ch_mult"], decoder["num_res_blocks"], strict=True)
    blocks = sum(width * mult * count / 4**level for level, (mult, count) in enumerate(levels))
    return blocks / patch**2, width * decoder["ch_mult"][0] / patch**2


def vqmodel_channels(folder: Path) -> tuple[float, float]:
    """The same of a diffusers ``VQModel`` folder; its decoder has one block more a level than its encoder."""
    config = read_json(folder / "config.json")
    widths, count = config["block_out_channels"], int(config["layers_per_block"]) + 1
    return sum(width * count / 4**level for level, width in enumerate(widths)), float(widths[0])


def image_token_bytes(channels: tuple[float, float], codes: int, stride: int, forward: int, number: int) -> int:
    """Bytes per token of a picture job. ``forward``: working memory of the prior; ``number``: bytes of one number in the decoder."""
    blocks, full = channels
    decoder = stride**2 * (SAVED_PER_CHANNEL * blocks + GRADIENTS * full) * number
    return int(decoder + LOGIT_TABLES * FLOAT * codes + forward)


def text_token_bytes(prior: Transformer, rewards: Sequence[Transformer], number: int) -> int:
    """Bytes per token of a text job."""
    return LOGIT_TABLES * FLOAT * prior.words + prior.forward_bytes(number) + sum(reward.backward_bytes(number) for reward in rewards)


def _transformer(folder: Path, *fields: str) -> Transformer:
    config = read_json(folder / "config.json")
    return Transformer(*(int(config[field]) for field in fields))
