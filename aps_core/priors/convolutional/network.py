"""A masked diffusion prior over pixels as a convolutional network, small and local.

It predicts every token from the decided ones, as MMaDA does. Given an estimate of the picture, and
what the measurement would make of it, it is a denoiser, with a distribution for every pixel's
brightness. It judges itself how wrong the estimate is, corrects its
colours, and says how firmly every pixel holds when the measurement pulls at it.

Shapes: B samples, L tokens on a grid (gh, gw), which are pixels, D bits, K = 2**D codes, Y = 16
levels of brightness, C channels, I inputs, O outputs.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from aps_core.checkpoints.files import read_tensors
from aps_core.checkpoints.metadata import read_config
from aps_core.errors import WeightsInvalid
from aps_core.priors.convolutional.blocks import Block, Coarse
from aps_core.tokenizers.pixels import (
    PixelTokenizer,
    brightness,
    mean_and_variance,
    of_codes,
)
from aps_core.types import MASK, Denoised, Grid

OUTPUTS = (16, 4, 1, 2, 1)
"""Outputs per token: logits of its brightness and of its two bits of colour; for an estimate, the
logarithm of its error, in units of :data:`ERROR`, and the error of its colour differences, in units
of :data:`COLOUR_ERROR`; and the logarithm of the prediction's weight. A continuous network has one
more: the error of the estimate's brightness, in units of :data:`SHIFT`.
"""
ESTIMATE_INPUTS = 7
"""Three channels each of the estimate and the pulled estimate, and whether they are given."""
ERROR = 0.15
"""Error of an estimate in [-1, 1] that an untrained network predicts (standard deviation)."""
SHIFT = 0.05
"""Unit of the predicted error of an estimate's brightness in [-1, 1]."""
COLOUR_ERROR = 0.05
"""Unit of the predicted error of colour differences in [-1, 1]."""
FIRMEST = 5.0
"""Largest logarithm of a weight."""


class ConvolutionalConfig(BaseModel):
    """Shape of the network."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bits: int
    width: int = 192
    blocks: int = 10
    kernel: int = 5
    """Side of the depthwise convolutions."""
    expansion: int = 3
    patch: int = 4
    """Side of the blocks of tokens that share one position of the network."""
    coarse_width: int = 256
    coarse_blocks: int = 0
    """Residual blocks in the middle of the network that run at half its resolution."""
    continuous: bool = False
    """Whether an estimate's brightness is corrected by a shift with a normal error. Otherwise each
    pixel has a distribution over the 16 levels, which suits black on white.
    """

    @property
    def outputs(self) -> tuple[int, ...]:
        """Channels per output of a token; see :data:`OUTPUTS`."""
        return (*OUTPUTS, 1) if self.continuous else OUTPUTS


class Answer(NamedTuple):
    """Prediction of all pixels, in float32."""

    y_BLY: Tensor
    """Logits of brightness."""
    colour_BL4: Tensor
    """Logits of bits of colour, without an estimate."""
    mean_BL: Tensor
    """Expected brightness."""
    variance_BL: Tensor
    """Variance of brightness."""
    colours_BCHW: Tensor
    """The estimates without their brightness; where one is given, corrected."""
    weight_BL: Tensor
    """Weight > 0 of a pixel's divergence in a fit; 1 without an estimate."""


class ConvolutionalNet(nn.Module):
    """Maps decided tokens and estimates to a prediction of every pixel."""

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.config = config
        area = config.patch**2
        self.embed = nn.Linear(area * (config.bits + 1 + ESTIMATE_INPUTS), config.width)
        shape = config.kernel, config.expansion
        self.blocks = nn.ModuleList(Block(config.width, *shape) for _ in range(config.blocks))
        self.coarse: Coarse | None = None
        if config.coarse_blocks:
            self.coarse = Coarse(config.width, config.coarse_width, config.coarse_blocks, *shape)
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, area * sum(config.outputs))
        nn.init.zeros_(self.head.weight)  # an untrained network believes the estimate
        nn.init.zeros_(self.head.bias)

    def from_tokens(self, z_BL: Tensor, tokenizer: PixelTokenizer, grid: Grid) -> Tensor:
        """Logits of codes (B, L, K) from the decided tokens alone; see :meth:`answer`."""
        nothing_BCHW = torch.zeros(len(z_BL), 3, *grid, device=z_BL.device)
        given_B = torch.zeros_like(z_BL[:, 0], dtype=torch.bool)
        predicted = self.answer(z_BL, nothing_BCHW, nothing_BCHW, given_B, tokenizer, grid)
        return of_codes(predicted.y_BLY, predicted.colour_BL4)

    def answer(
        self,
        z_BL: Tensor,
        estimate_BCHW: Tensor,
        pulled_BCHW: Tensor,
        given_B: Tensor,
        tokenizer: PixelTokenizer,
        grid: Grid,
    ) -> Answer:
        """Predicts all pixels from the decided tokens and estimates of the pictures.

        Bayes' rule combines a pixel's own estimate with the network's prediction from the other
        pixels; the network also predicts the error of the estimate.

        Args:
            z_BL: codes, or ``MASK`` where undecided.
            estimate_BCHW: the estimates, in [-1, 1].
            pulled_BCHW: the estimates after a steepest-descent step, in [-1, 1].
            given_B: True for pictures with both estimates.
            tokenizer: tokenizer of the codes.
            grid: rows and columns of the tokens, any number.
        """
        decided_BL = z_BL != MASK
        code_BLD = tokenizer.codebook_KD[z_BL.clamp(min=0)] * decided_BL[..., None]
        given_BL1 = given_B[:, None, None].expand(*z_BL.shape, 1)
        seen_B6HW = torch.cat([estimate_BCHW, pulled_BCHW], 1)
        seen_BL6 = seen_B6HW.flatten(2).transpose(1, 2) * given_BL1
        known_BLI = torch.cat([code_BLD, decided_BL[..., None], seen_BL6, given_BL1], -1)
        output_BLO: Tensor = self(known_BLI.to(self.embed.weight.dtype), grid).float()
        levels_BLY, bits_BL4, judged_BL1, colour_BL2, firm_BL1, *shift = output_BLO.split(
            self.config.outputs, -1
        )
        error_BL = ERROR * judged_BL1[..., 0].clamp(-4, 3).exp()
        y_BLY = levels_BLY + tokenizer.log_likelihood(estimate_BCHW, error_BL) * given_BL1
        changed_BL2 = COLOUR_ERROR * colour_BL2 * given_BL1
        colour_B2HW = changed_BL2.transpose(1, 2).unflatten(2, grid)
        weight_BL = (firm_BL1 * given_BL1)[..., 0].clamp(-FIRMEST, FIRMEST).exp()
        mean_BL, variance_BL = mean_and_variance(y_BLY.softmax(-1), tokenizer.levels_Y)
        if self.config.continuous:
            shifted_BL = brightness(estimate_BCHW).flatten(1) + SHIFT * shift[0][..., 0]
            mean_BL = shifted_BL.where(given_B[:, None], mean_BL)
            variance_BL = error_BL.square().where(given_B[:, None], variance_BL)
        colours_BCHW = tokenizer.colours(estimate_BCHW, colour_B2HW)
        return Answer(
            y_BLY=y_BLY,
            colour_BL4=bits_BL4,
            mean_BL=mean_BL,
            variance_BL=variance_BL,
            colours_BCHW=colours_BCHW,
            weight_BL=weight_BL,
        )

    def forward(self, known_BLI: Tensor, grid: Grid) -> Tensor:
        """Outputs (B, L, O) from the inputs of all tokens."""
        (rows, columns), patch = grid, self.config.patch
        known_BIhw = known_BLI.transpose(1, 2).unflatten(2, grid)
        # the border is repeated, because training has only pictures of whole blocks
        side = 2 * patch if self.coarse else patch
        known_BIhw = F.pad(known_BIhw, (0, -columns % side, 0, -rows % side), mode="replicate")
        h = self.embed(F.pixel_unshuffle(known_BIhw, patch).permute(0, 2, 3, 1).contiguous())
        for i, block in enumerate(self.blocks):
            if self.coarse and i == len(self.blocks) // 2:
                h = self.coarse(h)
            h = block(h)
        output_BOhw = F.pixel_shuffle(self.head(self.norm(h)).permute(0, 3, 1, 2), patch)
        return output_BOhw[:, :, :rows, :columns].flatten(2).transpose(1, 2)


class ConvolutionalPrior:
    """Implements :class:`aps_core.types.DenoisingPrior`."""

    def __init__(self, net: ConvolutionalNet, tokenizer: PixelTokenizer) -> None:
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
        return self.net.from_tokens(z_BL, self.tokenizer, grid)

    @torch.no_grad()
    def denoise(self, estimate_BCHW: Tensor, pulled_BCHW: Tensor) -> Denoised:
        """Predicts pictures of any size in float32, with no token decided."""
        rows, columns = estimate_BCHW.shape[2:]
        shape, device = (len(estimate_BCHW), rows * columns), estimate_BCHW.device
        nothing_BL = torch.full(shape, MASK, device=device)
        all_B = torch.ones(shape[0], dtype=torch.bool, device=device)
        predicted = self.net.answer(
            nothing_BL, estimate_BCHW, pulled_BCHW, all_B, self.tokenizer, (rows, columns)
        )
        return Denoised(
            predicted.mean_BL, predicted.variance_BL, predicted.colours_BCHW, predicted.weight_BL
        )


def load_convolutional(
    folder: Path, tokenizer: PixelTokenizer, device: torch.device | str, dtype: torch.dtype
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
