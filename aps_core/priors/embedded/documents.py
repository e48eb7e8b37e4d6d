"""The embedded documents prior: text, pages, screens, diagrams and icons."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from aps_core.checkpoints.files import EMBEDDED
from aps_core.errors import InvalidSpec
from aps_core.priors.base import Content
from aps_core.priors.embedded.image import EmbeddedImagePrior


class EmbeddedDocumentsPrior(EmbeddedImagePrior):
    """Small MMaDA-style prior over 128x128 pieces of documents: text, pages, screens, diagrams and
    icons; runs on a laptop CPU.
    """

    type: Literal["embedded_documents"] = "embedded_documents"
    package_folder: ClassVar[Path] = EMBEDDED / "documents"
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
            "learning_rate": 0.3,
            "prior_power": 0.25,
            "correction": 2.0,
            "smoothness": 1.0,
            "curvature": 1.0,
            "denoising": 0.8,
            "anchor_score": "margin",
            "anchor_temperature": 2.0,
        },
    }

    def check_prompt(self, prompt: str) -> None:
        """This prior was trained without captions.

        Raises:
            InvalidSpec: the prompt is not empty.
        """
        if prompt:
            raise InvalidSpec("Prior 'embedded_documents' takes no prompt; leave it empty.")
