"""The MAGVIT-v2 convolutional tokenizer network (encoder and decoder, no quantizer).

Plain torch, with the parameter names of the published ``showlab/magvitv2`` checkpoint, so that
a published state dict loads strictly. The one addition is :attr:`MagvitConfig.patch`: pixels are
unshuffled into ``patch * patch`` channels before the first level and shuffled back after the last
(1 = published network). A small tokenizer then computes mainly on the coarse grid.

Shape legend: B batch, C channels, H W pixels, h w latent grid (``H / stride``), D code bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from aps_core.tokenizers.attention import attention
from aps_core.tokenizers.frozen import Conv2d, GroupNorm


class LevelConfig(BaseModel):
    """Channel multipliers and residual blocks per resolution level, finest level first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ch_mult: tuple[int, ...] = (1, 2, 2, 4, 4)
    num_res_blocks: tuple[int, ...] = (4, 3, 4, 3, 4)


class MagvitConfig(BaseModel):
    """Shape of the network. The defaults are the published ``showlab/magvitv2`` network."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ch: int = 128
    decoder_ch: int | None = None
    """Channels that the decoder's multipliers count in; ``ch`` if None. The decoder runs in every
    inner step, the encoder once."""
    z_channels: int = 13
    codebook_dim: int = 13
    patch: int = 1
    encoder: LevelConfig = LevelConfig()
    decoder: LevelConfig = LevelConfig(ch_mult=(1, 1, 2, 2, 4), num_res_blocks=(4, 4, 3, 4, 3))

    @property
    def stride(self) -> int:
        """Pixels per token along one axis."""
        return int(self.patch * 2 ** (len(self.encoder.ch_mult) - 1))


def _norm_silu(channels: int) -> GroupNorm:
    return GroupNorm(32, channels, eps=1e-6, silu=True)


class ResBlock(nn.Module):
    """norm, SiLU, conv, norm, SiLU, conv, plus the (projected) input."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.norm1 = _norm_silu(c_in)
        self.conv1 = Conv2d(c_in, c_out, 3, padding=1)
        self.norm2 = _norm_silu(c_out)
        self.conv2 = Conv2d(c_out, c_out, 3, padding=1)
        if c_in != c_out:
            self.nin_shortcut = Conv2d(c_in, c_out, 1)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        h = self.conv1(self.norm1(x_BCHW))
        h = self.conv2(self.norm2(h))
        skip = self.nin_shortcut(x_BCHW) if hasattr(self, "nin_shortcut") else x_BCHW
        return h + skip  # type: ignore[no-any-return]


class AttnBlock(nn.Module):
    """Single-head self-attention over the grid positions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = GroupNorm(32, channels, eps=1e-6, silu=False)
        self.q = Conv2d(channels, channels, 1)
        self.k = Conv2d(channels, channels, 1)
        self.v = Conv2d(channels, channels, 1)
        self.proj_out = Conv2d(channels, channels, 1)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        h = self.norm(x_BCHW)
        q, k, v = (
            conv(h).flatten(2).transpose(1, 2).contiguous() for conv in (self.q, self.k, self.v)
        )
        return x_BCHW + self.proj_out(attention(q, k, v).transpose(1, 2).reshape_as(x_BCHW))  # type: ignore[no-any-return]


class Downsample(nn.Module):
    """Stride-2 convolution, zero-padded by one pixel on the right and bottom only."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = Conv2d(channels, channels, 3, stride=2)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.conv(F.pad(x_BCHW, (0, 1, 0, 1)))  # type: ignore[no-any-return]


class Upsample(nn.Module):
    """Nearest-neighbour doubling followed by a 3x3 convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = Conv2d(channels, channels, 3, padding=1)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.conv(F.interpolate(x_BCHW, scale_factor=2.0, mode="nearest"))  # type: ignore[no-any-return]


def _level(c_in: int, c_out: int, num_blocks: int) -> nn.Module:
    level = nn.Module()
    level.block = nn.ModuleList(
        [ResBlock(c_in if j == 0 else c_out, c_out) for j in range(num_blocks)]
    )
    return level


def _mid(channels: int) -> nn.Module:
    mid = nn.Module()
    mid.block_1 = ResBlock(channels, channels)
    mid.attn_1 = AttnBlock(channels)
    mid.block_2 = ResBlock(channels, channels)
    return mid


class Encoder(nn.Module):
    """Image to pre-quantisation latents: (B, 3, H, W) in [-1, 1] -> (B, D, h, w)."""

    def __init__(self, config: MagvitConfig) -> None:
        super().__init__()
        self.patch = config.patch
        mults, blocks = config.encoder.ch_mult, config.encoder.num_res_blocks
        c = config.ch
        self.conv_in = Conv2d(3 * config.patch**2, c, 3, padding=1)
        self.down = nn.ModuleList()
        for i, (mult, num) in enumerate(zip(mults, blocks, strict=True)):
            level = _level(c, config.ch * mult, num)
            c = config.ch * mult
            if i < len(mults) - 1:
                level.downsample = Downsample(c)
            self.down.append(level)
        self.mid = _mid(c)
        self.norm_out = _norm_silu(c)
        self.conv_out = Conv2d(c, config.z_channels, 3, padding=1)
        self.quant_conv = Conv2d(config.z_channels, config.codebook_dim, 1)

    def stages(self, x_BCHW: Tensor) -> Iterator[Tensor]:
        """The activations after every residual block, finest first, and after the middle."""
        h = self.conv_in(F.pixel_unshuffle(x_BCHW, self.patch))
        for level in self.down:
            for block in level.block:  # type: ignore[union-attr]
                h = block(h)
                yield h
            if hasattr(level, "downsample"):
                h = level.downsample(h)  # type: ignore[operator]
        yield self.mid.block_2(self.mid.attn_1(self.mid.block_1(h)))  # type: ignore[operator]

    def forward(self, x_BCHW: Tensor) -> Tensor:
        for h in self.stages(x_BCHW):  # noqa: B007 - the last one
            pass
        return self.quant_conv(self.conv_out(self.norm_out(h)))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """Codes or continuous embeddings to an image: (B, D, h, w) -> (B, 3, H, W), linear output."""

    recompute = False
    """Keep only the inputs of residual blocks for the backward pass."""

    def __init__(self, config: MagvitConfig) -> None:
        super().__init__()
        self.patch = config.patch
        mults, blocks = config.decoder.ch_mult, config.decoder.num_res_blocks
        ch = config.decoder_ch or config.ch
        c = ch * mults[-1]
        self.post_quant_conv = Conv2d(config.codebook_dim, config.z_channels, 1)
        self.conv_in = Conv2d(config.z_channels, c, 3, padding=1)
        self.mid = _mid(c)
        levels: list[nn.Module] = []
        for i in reversed(range(len(mults))):
            level = _level(c, ch * mults[i], blocks[i])
            c = ch * mults[i]
            if i > 0:
                level.upsample = Upsample(c)
            levels.insert(0, level)
        self.up = nn.ModuleList(levels)
        self.norm_out = _norm_silu(c)
        self.conv_out = Conv2d(c, 3 * config.patch**2, 3, padding=1)

    def forward(self, z_BDhw: Tensor) -> Tensor:
        h = self.conv_in(self.post_quant_conv(z_BDhw))
        h = self.mid.block_2(self.mid.attn_1(self.mid.block_1(h)))  # type: ignore[operator]
        for level in reversed(self.up):
            for block in level.block:  # type: ignore[union-attr]
                h = (
                    # The block draws nothing, and a CUDA graph's capture must not read the state
                    # of a random generator.
                    checkpoint(block, h, use_reentrant=False, preserve_rng_state=False)
                    if self.recompute and h.requires_grad
                    else block(h)
                )
            if hasattr(level, "upsample"):
                h = level.upsample(h)  # type: ignore[operator]
        return F.pixel_shuffle(self.conv_out(self.norm_out(h)), self.patch)


class Magvit2(nn.Module):
    """Encoder and decoder under the published names ``encoder.*`` and ``decoder.*``."""

    def __init__(self, config: MagvitConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
