"""Choice of the device a command computes on."""

from __future__ import annotations

import click

from aps_core.errors import InvalidSpec
from aps_core.tasks.estimate import CPU_MAX_PIXELS, GPU_MAX_PIXELS

DEVICE = click.Choice(("cpu", "cuda"))


def default_device(device: str | None) -> str:
    """Returns ``device``, or for None ``cuda`` if available, else ``cpu``.

    Raises:
        InvalidSpec: a CUDA device was requested and is not available.
    """
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise InvalidSpec(
            "--device cuda: this machine has no CUDA device, or torch was built without CUDA. Run"
            " 'aps doctor' for details."
        )
    return device


def max_pixels(device: str) -> int:
    """Largest result computed on ``device`` by default, in pixels."""
    return CPU_MAX_PIXELS if device == "cpu" else GPU_MAX_PIXELS
