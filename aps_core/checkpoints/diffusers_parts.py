"""Loads one network of a checkpoint in diffusers' folder layout.

Diffusers provides the network classes. Files are read by :mod:`aps_core.checkpoints.files`, so only
safetensors are opened and every mismatch names file, key and shape.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from aps_core.checkpoints.files import read_tensors
from aps_core.checkpoints.metadata import read_json
from aps_core.errors import WeightsInvalid

OLD_ATTENTION = {
    ".query.": ".to_q.",
    ".key.": ".to_k.",
    ".value.": ".to_v.",
    ".proj_attn.": ".to_out.0.",
}
"""Names of attention projections before diffusers 0.12, and the current names."""


def load_part(
    cls: type[Any], folder: Path, device: torch.device | str, dtype: torch.dtype, **fixed: Any
) -> Any:
    """Loads a frozen network of diffusers class ``cls`` from ``config.json`` and
    ``diffusion_pytorch_model.safetensors``.

    ``fixed`` overrides outdated fields of the configuration.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: the configuration does not match the class, or a key is missing, unknown or
            of another shape.
    """
    config = {**read_json(folder / "config.json"), **fixed}
    try:
        with torch.device("meta"):
            net = cls.from_config(config)
    except (AttributeError, TypeError, ValueError) as error:
        raise WeightsInvalid(
            f"{folder / 'config.json'} does not describe a {cls.__name__}: {error}"
        ) from error
    shapes = {key: value.shape for key, value in net.state_dict().items()}
    tensors = read_tensors(
        folder / "diffusion_pytorch_model.safetensors",
        shapes,
        rename=_todays_key,
        device=device,
        dtype=dtype,
    )
    net.load_state_dict(tensors, assign=True)
    return net.eval().requires_grad_(False)


def _todays_key(key: str) -> str:
    for old, new in OLD_ATTENTION.items():
        key = key.replace(old, new)
    return key
