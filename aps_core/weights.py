"""Reading checkpoint files: safetensors only, every mismatch named. Never downloads."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from aps_core.errors import WeightsInvalid, WeightsMissing

if TYPE_CHECKING:
    from torch import Tensor

Config = TypeVar("Config", bound=BaseModel)

EMBEDDED = Path(__file__).parent / "embedded"
"""Weights shipped with the package."""

WEIGHTS_DIR = "APS_WEIGHTS_DIR"
"""Environment variable naming the folder of downloaded weights, one folder a name."""


def weights_folder(name: str) -> Path:
    """The folder of downloaded weights called ``name``.

    Raises:
        WeightsMissing: no folder of weights is set, or it lacks this one.
    """
    root = os.environ.get(WEIGHTS_DIR)
    if not root:
        raise WeightsMissing(f"The weights '{name}' are needed: set {WEIGHTS_DIR} to a folder that holds them as '{name}'.")
    folder = Path(root) / name
    if not folder.is_dir():
        raise WeightsMissing(f"The weights '{name}' are needed: {folder} does not exist.")
    return folder


def refuse_pickle(path: Path) -> None:
    """Refuses a PyTorch pickle: opening one can run any code its author put there.

    Raises:
        WeightsInvalid: ``path`` is a pickle, bare or in PyTorch's zip archive; the message says how to convert it.
    """
    with path.open("rb") as file:
        start = file.read(9)
    if start[8:] == b"{":  # safetensors: eight bytes of length, then JSON
        return
    if start[:4] == b"PK\x03\x04" or start[:1] == b"\x80":
        raise WeightsInvalid(
            f"{path} is a pickle, which can run code when it is opened. Convert it once, where that does no harm, with "
            "safetensors.torch.save_file(torch.load(file, weights_only=True), new_file) - of the tensors alone, should they lie deeper in it."
        )


def folder_identity(folder: Path) -> str:
    """Hash of a folder of weights that changes when they do, without reading gigabytes.

    Of every safetensors file: name, size, and a mebibyte of its start (all keys and shapes), middle and end.
    """
    sha = hashlib.sha256()
    for path in sorted(folder.rglob("*.safetensors")):
        size = path.stat().st_size
        sha.update(f"{path.relative_to(folder)}:{size};".encode())
        with path.open("rb") as file:
            for start in (0, size // 2, max(0, size - 2**20)):
                file.seek(start)
                sha.update(file.read(2**20))
    return sha.hexdigest()


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


def read_tensors(path: Path, shapes: Mapping[str, Sequence[int]], ignore: tuple[str, ...] = (), rename: Callable[[str], str] = str) -> dict[str, Tensor]:
    """Reads exactly the tensors named in ``shapes`` from a safetensors file.

    ``ignore`` lists prefixes of keys that may be present without being read; ``rename`` turns a file's
    spelling of a key into that of ``shapes``, for checkpoints published with several spellings.

    Raises:
        WeightsMissing: the file is absent.
        WeightsInvalid: it is damaged or a pickle, or a key is missing, unexpected or of another shape.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        for other in (path.with_suffix(suffix) for suffix in (".bin", ".pth", ".pt")):
            if other.is_file():
                refuse_pickle(other)
        raise WeightsMissing(f"{path} does not exist.")
    refuse_pickle(path)
    try:
        with safe_open(path, framework="pt") as file:
            found = {rename(key): key for key in file.keys() if not key.startswith(ignore or ("\0",))}  # noqa: SIM118 - not a dict
            for key in sorted(shapes.keys() ^ found.keys()):
                raise WeightsInvalid(f"{path}: key '{key}' is {'missing' if key in shapes else 'unexpected'}.")
            tensors = {key: file.get_tensor(stored) for key, stored in found.items()}
    except SafetensorError as error:
        raise WeightsInvalid(f"{path} is not a readable safetensors file: {error}") from error
    for key, tensor in tensors.items():
        if tuple(tensor.shape) != tuple(shapes[key]):
            raise WeightsInvalid(f"{path}: '{key}' has shape {tuple(tensor.shape)}, expected {tuple(shapes[key])}.")
    return tensors
