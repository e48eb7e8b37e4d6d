"""The embedded denoiser of photographs: a network that removes white noise of a known level."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aps_core.checkpoints.files import EMBEDDED
from aps_core.priors.base import Content, Preset
from aps_core.priors.embedded.convolutional import EmbeddedConvolutionalPrior
from aps_core.runtime import memory
from aps_core.runtime.precision import fast_dtype
from aps_core.samplers.base import Denoiser

if TYPE_CHECKING:
    import torch

    from aps_core.types import Prior

CODES = 64
"""Levels of a pixel in the tokens of results."""


class EmbeddedDenoiserPrior(EmbeddedConvolutionalPrior):
    """Small denoiser of photographs, which only restores; runs on a laptop CPU."""

    type: Literal["embedded_denoiser"] = "embedded_denoiser"
    package_folder: ClassVar[Path] = EMBEDDED / "denoiser"
    content: ClassVar[Content] = "photographs"
    denoises: ClassVar[Denoiser | None] = "noise"
    restoring_sampler: ClassVar[str] = "half_quadratic"
    operators: ClassVar[frozenset[str] | None] = frozenset(
        {
            "defocus_blur",
            "denoise",
            "gaussian_blur",
            "jpeg",
            "kernel_blur",
            "linear_motion_blur",
            "motion_blur",
            "super_resolution",
        }
    )
    presets: ClassVar[dict[Preset, dict[str, float]]] = {
        "fast": {"steps": 0.5},
        "balanced": {},
        "best": {"steps": 1.5},
    }
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        "half_quadratic": {"steps": 10, "inner_steps": 25}
    }

    def token_bytes(self, device: str) -> int:
        """Computed from the network's configuration file."""
        (folder,), number = self.folders(), self.number_bytes(device)
        forward = memory.denoiser_bytes(folder, number)
        return memory.image_token_bytes(
            memory.PIXEL_DECODER, CODES, self.stride, forward, memory.FLOAT
        )

    def load(self, device: torch.device) -> Prior:
        """Loads the network from the package."""
        from aps_core.priors.denoising.network import load_denoiser

        (folder,) = self.folders()
        return load_denoiser(folder, device, fast_dtype(device))
