"""Reading checkpoint files: safetensors only, every mismatch named. Never downloads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from aps_core.errors import WeightsInvalid, WeightsMissing

if TYPE_CHECKING:
    from torch import Tensor

Config = TypeVar("Config", bound=BaseModel)

EMBEDDED = Path(__file__).parent / "embedded"
"""Weights shipped with the package."""


def read_json(path: Path) -> dict[str, Any]:
    """Reads a checkpoint's configuration.

    Raises:
        WeightsMissing: the file is absent.
        WeightsInvalid: it is not a JSON object.
    """
    if not path.is_file():
        raise WeightsMissing(f"{path} does not exist.")
    try:
        data = json.loads(path.read_text())
    except ValueError as error:
        raise WeightsInvalid(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise WeightsInvalid(f"{path} holds a {type(data).__name__}, not an object.")
    return data


def read_config(folder: Path, model: type[Config]) -> Config:
    """Reads a checkpoint folder's ``config.json``.

    Raises:
        WeightsMissing, WeightsInvalid: the file is absent, or a field is missing or wrong.
    """
    path = folder / "config.json"
    data = read_json(path)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise WeightsInvalid(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def read_tensors(path: Path, shapes: Mapping[str, Sequence[int]], ignore: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """Reads exactly the tensors named in ``shapes`` from a safetensors file.

    ``ignore`` lists prefixes of keys that may be present without being read.

    Raises:
        WeightsMissing: the file is absent.
        WeightsInvalid: it is damaged, or a key is missing, unexpected or of another shape.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise WeightsMissing(f"{path} does not exist.")
    try:
        with safe_open(path, framework="pt") as file:
            found = [key for key in file.keys() if not key.startswith(ignore or ("\0",))]  # noqa: SIM118 - not a dict
            for key in sorted(shapes.keys() ^ set(found)):
                raise WeightsInvalid(f"{path}: key '{key}' is {'missing' if key in shapes else 'unexpected'}.")
            tensors = {key: file.get_tensor(key) for key in found}
    except SafetensorError as error:
        raise WeightsInvalid(f"{path} is not a readable safetensors file: {error}") from error
    for key, tensor in tensors.items():
        if tuple(tensor.shape) != tuple(shapes[key]):
            raise WeightsInvalid(f"{path}: '{key}' has shape {tuple(tensor.shape)}, expected {tuple(shapes[key])}.")
    return tensors
