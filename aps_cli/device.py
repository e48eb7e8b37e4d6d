"""Which device a command computes on."""

from __future__ import annotations

from aps_core.errors import InvalidSpec


def default_device(device: str | None) -> str:
    """The device asked for, or cuda where there is one.

    Raises:
        InvalidSpec: cuda was asked for and is absent.
    """
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InvalidSpec(
            "--device cuda: this machine has no CUDA device, or torch was built without it. 'aps"
            " doctor' tells more."
        )
    return device
