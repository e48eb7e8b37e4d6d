"""The MAGVIT-v2 tokenizer: network, lookup-free quantizer, checkpoint folder."""

from __future__ import annotations

from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from aps_core.errors import WeightsInvalid
from aps_core.tokenizers.magvit2_net import Magvit2, MagvitConfig
from aps_core.tokenizers.quantizers import LookupFreeQuantizer
from aps_core.types import Grid
from aps_core.weights import read_json, read_tensors


class MagvitTokenizer:
    """See :class:`aps_core.types.Tokenizer`. Weights are frozen: gradients reach only the embeddings."""

    def __init__(self, net: Magvit2, compute_dtype: torch.dtype) -> None:
        self.net = net.eval().requires_grad_(False)
        device = next(net.parameters()).device
        self.quantizer = LookupFreeQuantizer(net.config.codebook_dim, device)
        self.codebook_KD = self.quantizer.codebook_KD
        self.stride = net.config.stride
        self._autocast = torch.autocast(device.type, dtype=compute_dtype, enabled=compute_dtype != torch.float32)

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Pre-quantisation latents (B, D, h, w), differentiable."""
        with self._autocast:
            return self.net.encoder(x_BCHW).float()  # type: ignore[no-any-return]

    @torch.no_grad()
    def encode(self, x_BCHW: Tensor) -> Tensor:
        """Pictures in [-1, 1], sides divisible by ``stride``, to codes (B, L) in raster order."""
        return self.quantize(self.features(x_BCHW).flatten(2).transpose(1, 2))[0]

    def quantize(self, e_BLD: Tensor) -> tuple[Tensor, Tensor]:
        """Codes (B, L) and embeddings in {-1, +1}."""
        return self.quantizer(e_BLD)

    def decode(self, e_BLD: Tensor, grid: Grid) -> Tensor:
        """Embeddings (B, L, D) to pictures (B, 3, gh * stride, gw * stride), float32, unclamped."""
        batch, _, dims = e_BLD.shape
        with self._autocast:
            return self.net.decoder(e_BLD.transpose(1, 2).reshape(batch, dims, *grid)).float()  # type: ignore[no-any-return]


def load_magvit(folder: Path, device: torch.device | str, compute_dtype: torch.dtype) -> MagvitTokenizer:
    """Loads ``config.json`` and ``model.safetensors`` of a tokenizer folder.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: a key is missing, unknown, or of another shape.
    """
    try:
        config = MagvitConfig.model_validate(read_json(folder / "config.json"))
    except ValidationError as error:
        raise WeightsInvalid(f"{folder / 'config.json'} does not describe a MAGVIT-v2 network: {error.errors()[0]['msg']}") from error
    with torch.device("meta"):
        net = Magvit2(config)
    # The published file also stores the quantizer's constant tables, which we derive instead.
    tensors = read_tensors(folder / "model.safetensors", {k: v.shape for k, v in net.state_dict().items()}, ignore=("quantize.",))
    net.load_state_dict({k: v.to(device, torch.float32) for k, v in tensors.items()}, assign=True)
    return MagvitTokenizer(net, compute_dtype)
