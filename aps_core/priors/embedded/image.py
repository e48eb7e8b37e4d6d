"""The embedded image priors: MMaDA and MAGVIT-v2 at a small size, shipped with the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aps_core._lazy import lazy_import
from aps_core.checkpoints.files import EMBEDDED
from aps_core.checkpoints.metadata import read_json
from aps_core.priors.base import ImagePriorSpec
from aps_core.priors.prompts import check_length
from aps_core.runtime import memory
from aps_core.runtime.precision import fast_dtype

if TYPE_CHECKING:
    import torch

    from aps_core.types import Prior
else:
    torch = lazy_import("torch")


class EmbeddedImagePrior(ImagePriorSpec):
    """An MMaDA prior with its MAGVIT-v2 tokenizer whose weights ship with the package."""

    package_folder: ClassVar[Path]
    """Folder of both checkpoints."""
    attention_share: ClassVar[float] = 0.15
    native_size: ClassVar[tuple[int, int]] = (128, 128)
    stride: ClassVar[int] = 4
    recommended_loss: ClassVar[dict[str, dict[str, Any]]] = {
        "measurement": {"perceptual_weight": 0.0}
    }
    restoring_sampler: ClassVar[str] = "carried_evidence"

    def folders(self) -> tuple[Path, ...]:
        """Transformer and tokenizer, both in the package."""
        return self.package_folder / "mmada", self.package_folder / "tokenizer"

    def token_bytes(self, device: str) -> int:
        """Computed from the folders' configuration files."""
        return mmada_token_bytes(self, device)

    def load(self, device: torch.device) -> Prior:
        """Loads transformer and tokenizer from the package."""
        from aps_core.priors.mmada.network import load_mmada
        from aps_core.tokenizers.magvit2 import load_magvit

        transformer, tokenizer = self.folders()
        return load_mmada(
            transformer,
            load_magvit(tokenizer, device, fast_dtype(device)),
            device,
            fast_dtype(device),
        )


class EmbeddedPrior(EmbeddedImagePrior):
    """Small MMaDA-style prior over 128x128 pictures, trained on openly licensed photographs; runs
    on a laptop CPU.
    """

    type: Literal["embedded"] = "embedded"
    package_folder: ClassVar[Path] = EMBEDDED / "image"
    recommended: ClassVar[dict[str, Any]] = {
        "steps": 10,
        "inner_steps": 30,
        "learning_rate": 1.0,
        "anchor_score": "margin",
        "anchor_temperature": 2.0,
        "guidance_scale": 1.0,
    }
    tuned: ClassVar[dict[str, dict[str, Any]]] = {  # research/tuning/sampler-tuning.md
        "carried_evidence": {
            "steps": 10,
            "inner_steps": 6,
            "learning_rate": 0.3,
            "correction": 2.0,
            "smoothness": 4.0,
            "curvature": 2.0,
            "denoising": 0.8,  # this and curvature: research.tuning.default
            "anchor_score": "margin",
            "anchor_temperature": 2.0,
        },
        "prior_only": {"steps": 15, "order_temperature": 40.0},
        "single_optimisation": {"learning_rate": 0.05},
        "g2d2": {
            "steps": 15,
            "learning_rate": 5.0,
            "learning_rate_decades": 0.0,
            "revision": 0.1,
            "forget": 0.1,
        },
        "sgdd": {"steps": 5, "denoise_steps": 16, "alpha": 0.1},
        "svdd": {"steps": 15, "order_temperature": 40.0, "temperature": 1.0},
    }

    def check_prompt(self, prompt: str) -> None:
        """Limit of the checkpoint's text block."""
        mmada_check_prompt(self.folders()[0], prompt)


def mmada_token_bytes(spec: ImagePriorSpec, device: str) -> int:
    """Memory per token of any MMaDA prior with a MAGVIT-v2 tokenizer, given their folders in this
    order.
    """
    transformer, tokenizer = spec.folders()
    codes = 2 ** int(read_json(tokenizer / "config.json").get("codebook_dim", 13))
    number = spec.number_bytes(device)
    return memory.image_token_bytes(
        memory.magvit_decoder(tokenizer),
        codes,
        spec.stride,
        memory.llada(transformer).forward_bytes(number),
        number,
    )


def mmada_check_prompt(folder: Path, prompt: str) -> None:
    """Checks that a prompt fits an MMaDA checkpoint's text block, which would truncate it.

    Raises:
        InvalidSpec: the prompt has too many tokens.
    """
    if not prompt:
        return
    longest = int(read_json(folder / "config.json").get("layout", {}).get("max_text_len", 512))
    check_length(folder, prompt, longest - 2)  # the block's start and end markers count as tokens
