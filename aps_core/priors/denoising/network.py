"""A denoiser of white noise of a known level, small and local, which judges its own error.

It sees squares of two by two pixels as one position, and works at half, a quarter and an eighth of
the resolution. Without biases, and with the noise level as an input, what it says scales with its
input (Mohan et al. 2020): levels that training lacked are no surprise.

Shapes: B samples, C channels, (H, W) pixels, (h, w) positions.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from aps_core.checkpoints.files import read_tensors
from aps_core.checkpoints.metadata import read_config
from aps_core.tokenizers.pixels import PixelTokenizer
from aps_core.types import Grid

SIDE = 8
"""Pixels that share one position at the lowest resolution."""
LEAST_SIGMA = 0.008
"""Least noise in training. Of less, a share of what would be removed of this is removed."""
LEAST_DEVIATION = 0.02
"""Of what remains, relative to the noise."""


class DenoiserConfig(BaseModel):
    """Shape of the network: widths and numbers of blocks at half, a quarter and an eighth of the
    resolution.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    widths: tuple[int, int, int] = (64, 128, 96)
    down: tuple[int, int] = (2, 1)
    """Blocks on the way to the lowest resolution."""
    lowest: int = 1
    up: tuple[int, int] = (2, 2)
    """Blocks on the way back, at half and a quarter of the resolution."""
    judge: int = 16
    """Width of the layer that judges the error."""


def _conv(inner: int, outer: int) -> nn.Conv2d:
    return nn.Conv2d(inner, outer, 3, padding=1, bias=False)


class Block(nn.Module):
    """Two convolutions, plus the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = _conv(width, width)
        self.second = _conv(width, width)
        nn.init.zeros_(self.second.weight)

    def forward(self, x_BChw: Tensor) -> Tensor:
        """Same shape in and out."""
        h: Tensor = self.second(F.relu(self.first(x_BChw)))
        return x_BChw + h


def _blocks(width: int, number: int) -> nn.Sequential:
    return nn.Sequential(*(Block(width) for _ in range(number)))


class DenoiserNet(nn.Module):
    """Noisy pictures and their noise levels to pictures and deviations."""

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__()
        self.config = config
        half, quarter, eighth = config.widths
        self.embed = _conv(4 * 3 + 1, half)
        self.half_in = _blocks(half, config.down[0])
        self.to_quarter = nn.Conv2d(half, quarter, 2, stride=2, bias=False)
        self.quarter_in = _blocks(quarter, config.down[1])
        self.to_eighth = nn.Conv2d(quarter, eighth, 2, stride=2, bias=False)
        self.eighth = _blocks(eighth, config.lowest)
        self.from_eighth = nn.ConvTranspose2d(eighth, quarter, 2, stride=2, bias=False)
        nn.init.zeros_(self.from_eighth.weight)
        self.quarter_out = _blocks(quarter, config.up[1])
        self.from_quarter = nn.ConvTranspose2d(quarter, half, 2, stride=2, bias=False)
        self.half_out = _blocks(half, config.up[0])
        self.head = _conv(half, 4 * 3)
        self.judge = nn.Sequential(_conv(half, config.judge), nn.ReLU(), _conv(config.judge, 4))

    def forward(self, noisy_BCHW: Tensor, sigma_B: Tensor) -> tuple[Tensor, Tensor]:
        """Expected pictures (B, 3, H, W) and the standard deviation of their error (B, 1, H, W) in
        each pixel, which is the same for all colours.

        Args:
            noisy_BCHW: pictures in [-1, 1] with white noise, of any size.
            sigma_B: standard deviations of the noise on that scale.
        """
        rows, columns = noisy_BCHW.shape[2:]
        # beyond the picture its border goes on
        x_BCHW = F.pad(noisy_BCHW, (0, -columns % SIDE, 0, -rows % SIDE), mode="replicate")
        seen_BChw = F.pixel_unshuffle(x_BCHW, 2)
        sigma_B111 = sigma_B[:, None, None, None]
        level_B1hw = 2 * sigma_B111.expand(-1, 1, *seen_BChw.shape[2:])
        known_BChw = torch.cat([seen_BChw, level_B1hw], 1).to(self.embed.weight.dtype)
        half_BChw = self.half_in(self.embed(known_BChw))
        quarter_BChw = self.quarter_in(self.to_quarter(half_BChw))
        eighth_BChw = self.eighth(self.to_eighth(quarter_BChw))
        quarter_BChw = self.quarter_out(quarter_BChw + self.from_eighth(eighth_BChw))
        half_BChw = self.half_out(half_BChw + self.from_quarter(quarter_BChw))
        noise_BCHW = F.pixel_shuffle(self.head(half_BChw).float(), 2)
        # the judge only watches: it must not make pictures worse
        judged_B1HW = F.pixel_shuffle(self.judge(half_BChw.detach()).float(), 2)
        deviation_B1HW = torch.hypot(judged_B1HW, LEAST_DEVIATION * sigma_B111)
        return (x_BCHW - noise_BCHW)[..., :rows, :columns], deviation_B1HW[..., :rows, :columns]


def channels_last(net: DenoiserNet) -> None:
    """Lays the convolutions' weights out in the order in which they are quickest."""
    for weight in net.parameters():
        weight.data = weight.data.contiguous(memory_format=torch.channels_last)


class NoiseDenoiser:
    """Implements :class:`aps_core.types.NoisePrior`."""

    def __init__(self, net: DenoiserNet, tokenizer: PixelTokenizer) -> None:
        self.net = net.eval().requires_grad_(False)
        channels_last(self.net)
        self.tokenizer = tokenizer

    def logits(
        self,
        z_BL: Tensor,
        *,
        grid: Grid,
        mask_fraction: float,
        condition: str,
        guidance_scale: float,
    ) -> Tensor:
        """It cannot predict tokens from others: all codes are alike (B, L, K)."""
        return torch.zeros(*z_BL.shape, len(self.tokenizer.codebook_KD), device=z_BL.device)

    @torch.no_grad()
    def without_noise(self, noisy_BCHW: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        """In float32, of pictures of any size."""
        told = max(sigma, LEAST_SIGMA)
        sigma_B = noisy_BCHW.new_full((len(noisy_BCHW),), told, dtype=torch.float32)
        noisy_BCHW = noisy_BCHW.float().contiguous(memory_format=torch.channels_last)
        mean_BCHW, deviation_B1HW = self.net(noisy_BCHW, sigma_B)
        share = sigma / told
        return noisy_BCHW.lerp(mean_BCHW, share).contiguous(), share * deviation_B1HW[:, 0]


def load_denoiser(folder: Path, device: torch.device | str, dtype: torch.dtype) -> NoiseDenoiser:
    """Loads a folder with ``config.json`` and one safetensors file.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: a field or key is missing, unknown, or of another shape.
    """
    config = read_config(folder, DenoiserConfig)
    with torch.device("meta"):
        net = DenoiserNet(config)
    shapes = {key: value.shape for key, value in net.state_dict().items()}
    net.load_state_dict(read_tensors(folder, shapes, device=device, dtype=dtype), assign=True)
    return NoiseDenoiser(net, PixelTokenizer(device))
