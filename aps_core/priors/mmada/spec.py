"""The published image priors: MMaDA-8B with the MAGVIT-v2 tokenizer, in bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aps_core._lazy import lazy_import
from aps_core.checkpoints.metadata import read_json
from aps_core.losses.measurement import MeasurementLoss
from aps_core.priors.base import ImagePriorSpec
from aps_core.priors.embedded.image import mmada_check_prompt, mmada_token_bytes
from aps_core.runtime import memory

if TYPE_CHECKING:
    import torch

    from aps_core.types import Prior
else:
    torch = lazy_import("torch")

CODES = 8192
"""Number of image codes of the published tokenizer."""
WHOLE_TOKENS = 4096
"""Largest number of image tokens evaluated as one sequence: the paper's largest, at 1024x1024
pixels. The prior was trained on 1024 tokens.
"""


class MMaDA8B(ImagePriorSpec):
    """MMaDA-8B-Base, 512x512 pictures; the paper's prior and settings. Needs a GPU with about 20
    GB.
    """

    type: Literal["mmada_8b"] = "mmada_8b"
    native_size: ClassVar[tuple[int, int]] = (512, 512)
    stride: ClassVar[int] = 16
    recommended_loss: ClassVar[dict[str, dict[str, Any]]] = {"measurement": {"perceptual": "auto"}}
    weights: ClassVar[tuple[str, ...]] = ("mmada-8b-base", "magvitv2")
    better_with: ClassVar[tuple[str, ...]] = ("vgg16",)

    def check_prompt(self, prompt: str) -> None:
        """Limit of the checkpoint's text block."""
        if self.missing() is None:
            mmada_check_prompt(self.folders()[0], prompt)

    def number_bytes(self, device: str) -> int:
        """bfloat16 on every device."""
        return 2

    def weights_bytes(self, device: str) -> int:
        """Without the text rows of the output head, which are not loaded."""
        config = read_json(self.folders()[0] / "config.json")
        unread = (int(config["embedding_size"]) - CODES) * int(config["d_model"])
        return super().weights_bytes(device) - unread * self.number_bytes(device)

    def token_bytes(self, device: str) -> int:
        """Includes the recommended perceptual term."""
        loss = MeasurementLoss(**self.recommended_loss["measurement"]).settled()
        term = (
            memory.VGG16_BYTES
            if loss.perceptual == "vgg16"
            else memory.magvit_encoder_bytes(self.folders()[1], self.number_bytes(device))
        )
        return mmada_token_bytes(self, device) + int(self.stride**2 * term)

    def load(self, device: torch.device) -> Prior:
        """Loads transformer and tokenizer in bfloat16."""
        from aps_core.priors.mmada.network import load_mmada
        from aps_core.tokenizers.magvit2 import load_magvit

        transformer, tokenizer = self.folders()
        return load_mmada(
            transformer,
            load_magvit(tokenizer, device, torch.bfloat16),
            device,
            torch.bfloat16,
            WHOLE_TOKENS,
        )


class MMaDA8BMixCoT(MMaDA8B):
    """MMaDA-8B after mixed chain-of-thought tuning, otherwise as mmada_8b."""

    type: Literal["mmada_8b_mixcot"] = "mmada_8b_mixcot"  # type: ignore[assignment]
    weights: ClassVar[tuple[str, ...]] = ("mmada-8b-mixcot", "magvitv2")
