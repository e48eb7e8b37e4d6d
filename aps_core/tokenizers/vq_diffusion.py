"""The VQ-VAE of VQ-Diffusion: diffusers' network with a nearest-neighbour codebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers import VQModel
from diffusers.models.attention_processor import Attention
from torch import Tensor

from aps_core.checkpoints.diffusers_parts import load_part
from aps_core.tokenizers.attention import attention
from aps_core.tokenizers.quantizers import VectorQuantizer
from aps_core.types import Grid


class VQDiffusionTokenizer:
    """Implements :class:`aps_core.types.Tokenizer`. Weights are frozen; gradients only reach the
    embeddings.

    The network computes in its weights' dtype. Codebook, pictures and gradients outside it are
    float32.
    """

    def __init__(self, net: VQModel) -> None:
        self.net = net
        for layer in net.modules():
            if isinstance(layer, Attention):
                layer.set_processor(SingleHead())
        self.dtype = next(net.parameters()).dtype
        self.codebook_KD = net.quantize.embedding.weight.detach().float()
        self.quantizer = VectorQuantizer(self.codebook_KD)
        self.stride = 2 ** (len(net.config.block_out_channels) - 1)

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Pre-quantisation latents (B, D, h, w), differentiable."""
        latents: Tensor = self.net.encode(x_BCHW.to(self.dtype)).latents
        return latents.float()

    def feature_maps(self, x_BCHW: Tensor) -> list[Tensor]:
        """The latents alone."""
        return [self.features(x_BCHW)]

    @torch.no_grad()
    def encode(self, x_BCHW: Tensor) -> Tensor:
        """Pictures in [-1, 1], sides divisible by ``stride``, to codes (B, L) in raster order."""
        return self.quantize(self.features(x_BCHW).flatten(2).transpose(1, 2))[0]

    def quantize(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings (..., D) to nearest codes (...) and their codebook rows (..., D)."""
        return self.quantizer(e)

    def decode(self, e_BLD: Tensor, grid: Grid) -> Tensor:
        """Embeddings (B, L, D), quantised or not, to pictures (B, 3, gh * stride, gw * stride),
        float32, unclamped.
        """
        batch, _, dims = e_BLD.shape
        z_BDhw = e_BLD.to(self.dtype).transpose(1, 2).reshape(batch, dims, *grid)
        picture: Tensor = self.net.decode(z_BDhw, force_not_quantize=True).sample
        return picture.float()


class SingleHead:
    """diffusers' single-head attention block over all pixels, computed by
    :func:`aps_core.tokenizers.attention.attention`.
    """

    def __call__(self, block: Attention, x_BCHW: Tensor, **_: Any) -> Tensor:
        """Same shape in and out."""
        h_BLC = block.group_norm(x_BCHW.flatten(2)).transpose(1, 2)
        q_BLC, k_BLC, v_BLC = block.to_q(h_BLC), block.to_k(h_BLC), block.to_v(h_BLC)
        out_BLC = block.to_out[0](attention(q_BLC, k_BLC, v_BLC))
        y_BCHW = out_BLC.transpose(1, 2).reshape_as(x_BCHW) + x_BCHW
        return y_BCHW / block.rescale_output_factor  # type: ignore[no-any-return]


def load_vq_tokenizer(
    folder: Path, device: torch.device | str, dtype: torch.dtype
) -> VQDiffusionTokenizer:
    """Loads the ``vqvae`` folder of a VQ-Diffusion checkpoint.

    Raises:
        WeightsMissing, WeightsInvalid: see :func:`aps_core.checkpoints.diffusers_parts.load_part`.
    """
    return VQDiffusionTokenizer(load_part(VQModel, folder, device, dtype))
