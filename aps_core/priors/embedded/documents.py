"""The embedded documents prior: text, pages, screens, diagrams and icons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aps_core.checkpoints.files import EMBEDDED
from aps_core.checkpoints.metadata import read_json
from aps_core.errors import InvalidSpec
from aps_core.priors.base import Content
from aps_core.priors.embedded.image import EmbeddedImagePrior, fast_dtype
from aps_core.runtime import memory

if TYPE_CHECKING:
    import torch

    from aps_core.types import Prior


class EmbeddedDocumentsPrior(EmbeddedImagePrior):
    """Small convolutional prior over documents: text, pages, screens, diagrams and icons; runs on a
    laptop CPU.
    """

    type: Literal["embedded_documents"] = "embedded_documents"
    package_folder: ClassVar[Path] = EMBEDDED / "documents"
    attention_share: ClassVar[float] = 0.0
    stride: ClassVar[int] = 2
    content: ClassVar[Content] = "documents"
    recommended: ClassVar[dict[str, Any]] = {
        "steps": 10,
        "inner_steps": 30,
        "learning_rate": 1.0,
        "guidance_scale": 0.0,
    }
    tuned: ClassVar[dict[str, dict[str, Any]]] = {  # on withheld fonts, scans and screens
        "carried_evidence": {
            "steps": 10,
            "inner_steps": 10,
            "learning_rate": 0.15,
            "told": 0.5,  # as in training
            "start": 0.0,
            "prior_weight": 0.3,
            "correction": 1.0,
            "smoothness": 1.0,
            "curvature": 1.0,
            "denoising": 0.8,
        },
    }

    def folders(self) -> tuple[Path, ...]:
        """Prior and tokenizer, both in the package."""
        return self.package_folder / "prior", self.package_folder / "tokenizer"

    def token_bytes(self, device: str) -> int:
        """Computed from the folders' configuration files."""
        prior, tokenizer = self.folders()
        number = self.number_bytes(device)
        return memory.image_token_bytes(
            memory.magvit_decoder(tokenizer),
            2 ** int(read_json(tokenizer / "config.json")["codebook_dim"]),
            self.stride,
            memory.convolutional_bytes(prior, number),
            number,
        )

    def load(self, device: torch.device) -> Prior:
        """Loads prior and tokenizer from the package."""
        from aps_core.priors.convolutional.network import load_convolutional
        from aps_core.tokenizers.magvit2 import load_magvit

        prior, tokenizer = self.folders()
        dtype = fast_dtype(device)
        return load_convolutional(prior, load_magvit(tokenizer, device, dtype), device, dtype)

    def check_prompt(self, prompt: str) -> None:
        """This prior was trained without captions.

        Raises:
            InvalidSpec: the prompt is not empty.
        """
        if prompt:
            raise InvalidSpec("Prior 'embedded_documents' takes no prompt; leave it empty.")
