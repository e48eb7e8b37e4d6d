"""The embedded image prior: MMaDA and MAGVIT-v2 at a small size, shipped with the package."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aps_core._lazy import lazy_import
from aps_core.priors.base import ImagePriorSpec
from aps_core.weights import EMBEDDED

if TYPE_CHECKING:
    import torch

    from aps_core.types import Prior
else:
    torch = lazy_import("torch")


class EmbeddedPrior(ImagePriorSpec):
    """Small MMaDA-style prior over 128x128 pictures, trained on openly licensed photographs; runs on a laptop CPU."""

    type: Literal["embedded"] = "embedded"
    native_size: ClassVar[tuple[int, int]] = (128, 128)
    stride: ClassVar[int] = 4
    recommended: ClassVar[dict[str, Any]] = {
        "inner_steps": 20,
        "learning_rate": 3.0,
        "anchor_score": "margin",
        "anchor_temperature": 2.0,
        "perceptual_weight": 0.0,
        "guidance_scale": 1.0,
    }

    def identity(self) -> str:
        """See :meth:`PriorSpec.identity`."""
        sha = hashlib.sha256()
        for part in ("tokenizer", "mmada"):
            sha.update((EMBEDDED / "image" / part / "model.safetensors").read_bytes())
        return sha.hexdigest()

    def load(self, device: torch.device) -> Prior:
        """See :meth:`ImagePriorSpec.load`."""
        from aps_core.priors.mmada import load_mmada
        from aps_core.tokenizers.magvit2 import load_magvit

        tokenizer = load_magvit(EMBEDDED / "image" / "tokenizer", device, fast_dtype(device))
        return load_mmada(EMBEDDED / "image" / "mmada", tokenizer, device, fast_dtype(device))


def fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the hardware multiplies it natively, else float32.

    On CPUs without AVX-512 bf16 or AMX, bfloat16 is emulated and slower than float32.
    """
    if device.type == "cpu":
        native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return torch.bfloat16 if native else torch.float32
    return torch.bfloat16
