"""The MAGVIT-v2 tokenizer: network, lookup-free quantizer, checkpoint folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from aps_core.checkpoints.files import read_tensors
from aps_core.checkpoints.metadata import read_json
from aps_core.errors import WeightsInvalid
from aps_core.tokenizers.execution import ExecutionPlan
from aps_core.tokenizers.frozen import Conv2d, GroupNorm
from aps_core.tokenizers.group_norm import FusedNorm
from aps_core.tokenizers.magvit2_net import Magvit2, MagvitConfig
from aps_core.tokenizers.quantizers import LookupFreeQuantizer
from aps_core.types import Grid


class MagvitTokenizer:
    """Implements :class:`aps_core.types.Tokenizer`. Weights are frozen; gradients only reach the
    embeddings.

    The network computes in its weights' dtype. Codes, pictures and gradients outside it are
    float32.
    """

    def __init__(self, net: Magvit2, plan: ExecutionPlan | None = None) -> None:
        self.net = net.eval().requires_grad_(False)
        self.dtype, device = next((p.dtype, p.device) for p in net.parameters())
        self.plan = plan or ExecutionPlan.default(device, self.dtype)
        self.layout = torch.channels_last if self.plan.channels_last else torch.contiguous_format
        net.to(memory_format=self.layout)  # type: ignore[call-overload]
        self.fused = FusedNorm() if self.plan.compile == "norms" else None
        for layer in net.modules() if self.plan.lean else ():
            if isinstance(layer, Conv2d):
                layer.freeze()
            elif isinstance(layer, GroupNorm):
                layer.freeze(self.fused)
        net.decoder.recompute = self.plan.recompute
        self.decoder = (
            torch.compile(net.decoder, dynamic=False)
            if self.plan.compile == "decoder"
            else net.decoder
        )
        self.quantizer = LookupFreeQuantizer(net.config.codebook_dim, device)
        self.codebook_KD = self.quantizer.codebook_KD
        self.stride = net.config.stride

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Pre-quantisation latents (B, D, h, w), differentiable."""
        return self.net.encoder(x_BCHW.to(self.dtype, memory_format=self.layout)).float()  # type: ignore[no-any-return]

    def feature_maps(self, x_BCHW: Tensor) -> list[Tensor]:
        """The encoder's activations (B, C, h, w), finest first, differentiable."""
        return [
            h.float()
            for h in self.net.encoder.stages(x_BCHW.to(self.dtype, memory_format=self.layout))
        ]

    @torch.no_grad()
    def encode(self, x_BCHW: Tensor) -> Tensor:
        """Pictures in [-1, 1], sides divisible by ``stride``, to codes (B, L) in raster order."""
        return self.quantize(self.features(x_BCHW).flatten(2).transpose(1, 2))[0]

    def quantize(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings (..., D) to codes (...) and embeddings in {-1, +1}."""
        return self.quantizer(e)

    def decode(self, e_BLD: Tensor, grid: Grid) -> Tensor:
        """Embeddings (B, L, D) to pictures (B, 3, gh * stride, gw * stride), float32, unclamped."""
        z_BDhw = (
            e_BLD.to(self.dtype)
            .transpose(1, 2)
            .unflatten(2, grid)
            .contiguous(memory_format=self.layout)
        )
        return self.decoder(z_BDhw).float()  # type: ignore[no-any-return]

    @property
    def fallback(self) -> str | None:
        """Why the network runs slower than its plan; None if it follows the plan."""
        if self.fused is None or self.fused.failure is None:
            return None
        return f"The normalisations run uncompiled: {self.fused.failure}"

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Context in which the decoder stores one tensor per residual block and recomputes the rest
        in the backward pass.
        """
        before, self.net.decoder.recompute = self.net.decoder.recompute, True
        try:
            yield
        finally:
            self.net.decoder.recompute = before


def load_magvit(
    folder: Path, device: torch.device | str, dtype: torch.dtype, plan: ExecutionPlan | None = None
) -> MagvitTokenizer:
    """Loads a tokenizer folder, as published or embedded: ``config.json`` and one safetensors file.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: a key is missing, unknown, or of another shape.
    """
    try:
        # the published file contains only diffusers' metadata ("_class_name")
        stored = read_json(folder / "config.json")
        config = MagvitConfig.model_validate(
            {key: value for key, value in stored.items() if not key.startswith("_")}
        )
    except ValidationError as error:
        raise WeightsInvalid(
            f"{folder / 'config.json'} does not describe a MAGVIT-v2 network:"
            f" {error.errors()[0]['msg']}"
        ) from error
    with torch.device("meta"):
        net = Magvit2(config)
    # The published file also stores the quantizer's constant tables, which we derive instead.
    shapes = {k: v.shape for k, v in net.state_dict().items()}
    net.load_state_dict(
        read_tensors(folder, shapes, ignore=("quantize.",), device=device, dtype=dtype), assign=True
    )
    return MagvitTokenizer(net, plan)
