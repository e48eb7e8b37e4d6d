"""What the embedded convolutional priors share; they only restore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from aps_core.checkpoints.metadata import read_json
from aps_core.errors import InvalidSpec
from aps_core.priors.base import Preset
from aps_core.priors.embedded.image import EmbeddedImagePrior
from aps_core.runtime import memory
from aps_core.runtime.precision import fast_dtype
from aps_core.samplers.base import Denoiser

if TYPE_CHECKING:
    import torch

    from aps_core.types import Prior


class EmbeddedConvolutionalPrior(EmbeddedImagePrior):
    """A convolutional prior over pixels whose weights ship with the package."""

    recommended: ClassVar[dict[str, Any]] = {
        "steps": 10,
        "inner_steps": 30,
        "learning_rate": 1.0,
        "guidance_scale": 0.0,
    }
    presets: ClassVar[dict[Preset, dict[str, float]]] = {
        "fast": {"steps": 0.5},
        "balanced": {},
        "best": {"steps": 1.5},
    }
    attention_share: ClassVar[float] = 0.0
    denoises: ClassVar[Denoiser | None] = "estimates"
    restoring_sampler: ClassVar[str] = "plug_and_play"
    recommended_loss: ClassVar[dict[str, dict[str, Any]]] = {
        "measurement": {"norm": "l2", "perceptual_weight": 0.0}
    }
    stride: ClassVar[int] = 1

    def folders(self) -> tuple[Path, ...]:
        """The network, in the package; the tokenizer has no weights."""
        return (self.package_folder / "prior",)

    def token_bytes(self, device: str) -> int:
        """Computed from the network's configuration file."""
        (folder,), number = self.folders(), self.number_bytes(device)
        return memory.image_token_bytes(
            memory.PIXEL_DECODER,
            2 ** int(read_json(folder / "config.json")["bits"]),
            self.stride,
            memory.convolutional_bytes(folder, number),
            memory.FLOAT,
        )

    def load(self, device: torch.device) -> Prior:
        """Loads the network from the package."""
        from aps_core.priors.convolutional.network import load_convolutional
        from aps_core.tokenizers.pixels import PixelTokenizer

        (folder,) = self.folders()
        return load_convolutional(folder, PixelTokenizer(device), device, fast_dtype(device))

    def check_prompt(self, prompt: str) -> None:
        """It was trained without captions.

        Raises:
            InvalidSpec: the prompt is not empty.
        """
        if prompt:
            raise InvalidSpec(
                f"Prior '{self.type}' takes no prompt; leave it empty, or choose another prior."
            )
