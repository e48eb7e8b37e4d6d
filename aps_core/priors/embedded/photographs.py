"""The embedded photographs prior, which only restores: a convolutional network over pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from aps_core.checkpoints.files import EMBEDDED
from aps_core.priors.base import Content
from aps_core.priors.embedded.convolutional import EmbeddedConvolutionalPrior


class EmbeddedPhotographsPrior(EmbeddedConvolutionalPrior):
    """Small convolutional prior over photographs; runs on a laptop CPU."""

    type: Literal["embedded_photographs"] = "embedded_photographs"
    package_folder: ClassVar[Path] = EMBEDDED / "photographs"
    content: ClassVar[Content] = "photographs"
    operators: ClassVar[frozenset[str] | None] = frozenset(
        {
            "auto",
            "blind",
            "blind_blur",
            "defocus_blur",
            "denoise",
            "gaussian_blur",
            "hdr",
            "jpeg",
            "kernel_blur",
            "linear_motion_blur",
            "motion_blur",
            "saturating_blur",
            "super_resolution",
        }
    )
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        "plug_and_play": {
            "steps": 4,
            "inner_steps": 25,
            "prior_weight": 4.0,
            "area_weight": 0.05,
            "first_steps": 250,
            "filling_steps": 250,
            "clipped_smoothness": 12.0,
            "clipped_reach": 12,
            "turned": True,
            "classical_share": 0.4,
        },
    }
