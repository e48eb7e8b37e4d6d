"""A masked diffusion prior as a convolutional network, for small models of local structure.

It predicts every token from the decided ones, as MMaDA does. Besides, it hears *evidence* of the
undecided tokens: how strongly each bit of a code leans to -1 or +1 according to something else, for
example a measurement. A masked token is one without evidence, so one network serves both.

Evidence of a token is a vector e (D) with ``p(code) ~ exp(e . code)``. Of a bit in {-1, +1},
``tanh(e)`` is the expectation. The network reads it in the place of the code.

Shapes: B samples, L tokens on a grid (gh, gw), D bits, K = 2**D codes, C channels.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from aps_core.checkpoints.files import read_tensors
from aps_core.checkpoints.metadata import read_config
from aps_core.errors import WeightsInvalid
from aps_core.types import MASK, Grid, Tokenizer


class ConvolutionalConfig(BaseModel):
    """Shape of the network."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bits: int
    width: int = 192
    blocks: int = 10
    kernel: int = 5
    """Side of the depthwise convolutions."""
    expansion: int = 3
    patch: int = 2
    """Side of the squares of tokens that share one position of the network."""


class Block(nn.Module):
    """Depthwise convolution, normalisation over channels, two linear layers, plus the input (Liu et
    al. 2022, "A ConvNet for the 2020s").
    """

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        width, kernel = config.width, config.kernel
        self.mix = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, config.expansion * width)
        self.narrow = nn.Linear(config.expansion * width, width)

    def forward(self, x_BhwC: Tensor) -> Tensor:
        """Same shape in and out."""
        # In training, gradients of depthwise convolutions are twice as fast in float32.
        with torch.autocast(x_BhwC.device.type, enabled=False):
            # a transposed view of channels-last memory: no copy
            x_BChw = x_BhwC.to(self.mix.weight.dtype).permute(0, 3, 1, 2)
            mixed_BhwC = self.mix(x_BChw).permute(0, 2, 3, 1)
        h: Tensor = self.narrow(F.gelu(self.widen(self.norm(mixed_BhwC))))
        return x_BhwC + h


class ConvolutionalNet(nn.Module):
    """Expectations of bits and flags of decided tokens to logits."""

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.config = config
        area = config.patch**2
        self.embed = nn.Linear(area * (config.bits + 1), config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, area * 2**config.bits)

    def forward(self, bits_BLD: Tensor, decided_BL: Tensor, grid: Grid) -> Tensor:
        """Logits (B, L, K).

        Args:
            bits_BLD: expectations of the bits in [-1, 1]; 0 where nothing is known.
            decided_BL: True where a token is decided.
            grid: rows and columns of the tokens, any number.
        """
        (rows, columns), patch = grid, self.config.patch
        known = torch.cat([bits_BLD, decided_BL.to(bits_BLD)[..., None]], dim=-1)
        known_BEhw = known.transpose(1, 2).unflatten(2, grid)
        # beyond the picture nothing is known
        known_BEhw = F.pad(known_BEhw, (0, -columns % patch, 0, -rows % patch))
        h = self.embed(F.pixel_unshuffle(known_BEhw, patch).permute(0, 2, 3, 1).contiguous())
        for block in self.blocks:
            h = block(h)
        logits_BKhw = F.pixel_shuffle(self.head(self.norm(h)).permute(0, 3, 1, 2), patch)
        return logits_BKhw[:, :, :rows, :columns].flatten(2).transpose(1, 2)


class ConvolutionalPrior:
    """Implements :class:`aps_core.types.EvidencePrior`."""

    def __init__(self, net: ConvolutionalNet, tokenizer: Tokenizer) -> None:
        self.net = net.eval().requires_grad_(False)
        self.tokenizer = tokenizer

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
        """Logits (B, L, K), float32. Grids of any size are evaluated whole. It knows no prompts."""
        nothing_BLD = self.tokenizer.codebook_KD.new_zeros(*z_BL.shape, self.net.config.bits)
        return self.logits_given(z_BL, nothing_BLD, grid)

    @torch.no_grad()
    def logits_given(self, z_BL: Tensor, evidence_BLD: Tensor, grid: Grid) -> Tensor:
        """Logits (B, L, K), float32, given evidence of the undecided tokens.

        Where a token has evidence, its own logits include it.
        """
        decided_BL = z_BL != MASK
        code_BLD = self.tokenizer.codebook_KD[z_BL.clamp(min=0)]
        bits_BLD = torch.where(decided_BL[..., None], code_BLD, evidence_BLD.tanh())
        dtype = self.net.embed.weight.dtype
        logits_BLK: Tensor = self.net(bits_BLD.to(dtype), decided_BL, grid)
        return logits_BLK.float()


def load_convolutional(
    folder: Path, tokenizer: Tokenizer, device: torch.device | str, dtype: torch.dtype
) -> ConvolutionalPrior:
    """Loads a folder with ``config.json`` and one safetensors file.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: a field or key is missing, unknown, or of another shape, or the tokenizer
            has other codes.
    """
    config = read_config(folder, ConvolutionalConfig)
    codes = len(tokenizer.codebook_KD)
    if codes != 2**config.bits:
        raise WeightsInvalid(
            f"{folder}: the network knows {2**config.bits} codes, the tokenizer {codes}."
        )
    with torch.device("meta"):
        net = ConvolutionalNet(config)
    shapes = {key: value.shape for key, value in net.state_dict().items()}
    net.load_state_dict(read_tensors(folder, shapes, device=device, dtype=dtype), assign=True)
    return ConvolutionalPrior(net, tokenizer)
