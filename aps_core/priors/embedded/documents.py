"""The embedded documents prior, which only restores: a convolutional network over pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from aps_core.checkpoints.files import EMBEDDED
from aps_core.priors.base import Content
from aps_core.priors.embedded.convolutional import EmbeddedConvolutionalPrior


class EmbeddedDocumentsPrior(EmbeddedConvolutionalPrior):
    """Small convolutional prior over documents: text, pages, screens, diagrams and icons; runs on a
    laptop CPU.
    """

    type: Literal["embedded_documents"] = "embedded_documents"
    package_folder: ClassVar[Path] = EMBEDDED / "documents"
    content: ClassVar[Content] = "documents"
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        "plug_and_play": {
            "steps": 8,
            "inner_steps": 25,
            "first_steps": 300,
            "filling_steps": 60,
            "area_weight": 1.0,
            "clipped_smoothness": 2.0,
            "clipped_reach": 2,
            "colour_weight": 8.0,
        },
    }
