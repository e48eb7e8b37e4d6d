"""Spec of the VQ-Diffusion prior."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aps_core.checkpoints.metadata import read_json
from aps_core.errors import WeightsMissing
from aps_core.priors.base import ImagePriorSpec
from aps_core.priors.prompts import check_length
from aps_core.runtime import memory
from aps_core.runtime.precision import fast_dtype

if TYPE_CHECKING:
    import torch

    from aps_core.types import Prior

NEEDS_DIFFUSERS = (
    "The prior 'vq_diffusion' needs the package diffusers, which is not installed: pip install"
    " '.[vqdiffusion]' in the source folder."
)


class VQDiffusion(ImagePriorSpec):
    """VQ-Diffusion trained on ITHQ (microsoft/vq-diffusion-ithq, 1.4 billion parameters, 256x256
    pictures), the prior of G2D2.
    """

    type: Literal["vq_diffusion"] = "vq_diffusion"
    native_size: ClassVar[tuple[int, int]] = (256, 256)
    stride: ClassVar[int] = 8
    # the release uses uncond + s (text - uncond) with s = 5; here s = 1 + guidance_scale
    recommended: ClassVar[dict[str, Any]] = {"guidance_scale": 4.0}

    weights: ClassVar[tuple[str, ...]] = ("vq-diffusion-ithq",)

    @classmethod
    def missing(cls) -> str | None:
        """Also reports a missing diffusers package."""
        return super().missing() or (NEEDS_DIFFUSERS if find_spec("diffusers") is None else None)

    def check_prompt(self, prompt: str) -> None:
        """Limit of CLIP's text block without start and end markers."""
        if self.missing() is None:
            folder = self.folders()[0]
            longest = int(
                read_json(folder / "text_encoder" / "config.json")["max_position_embeddings"]
            )
            check_length(folder / "tokenizer", prompt, longest - 2)

    def token_bytes(self, device: str) -> int:
        """Computed from the checkpoint's configuration files."""
        folder = self.folders()[0]
        config, number = (
            read_json(folder / "transformer" / "config.json"),
            self.number_bytes(device),
        )
        heads = int(config["num_attention_heads"])
        width = heads * int(config["attention_head_dim"])
        transformer = memory.Transformer(
            width=width, layers=int(config["num_layers"]), inner=4 * width, words=0, heads=heads
        )
        decoder = memory.vqmodel_decoder(folder / "vqvae")
        return memory.image_token_bytes(
            decoder,
            int(config["num_vector_embeds"]) - 1,
            self.stride,
            transformer.forward_bytes(number),
            number,
        )

    def load(self, device: torch.device) -> Prior:
        """Loads transformer, text encoder and tokenizer with diffusers."""
        folder = self.folders()[0]
        if find_spec("diffusers") is None:
            raise WeightsMissing(NEEDS_DIFFUSERS)
        from aps_core.priors.vq_diffusion.network import load_vq_diffusion

        return load_vq_diffusion(folder, device, fast_dtype(device))
