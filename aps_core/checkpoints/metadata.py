"""Reads a checkpoint's configuration, header and identity. Needs no torch and no safetensors."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from aps_core.errors import WeightsInvalid, WeightsMissing

Config = TypeVar("Config", bound=BaseModel)


def folder_identity(folder: Path) -> str:
    """Hash of a folder of weights that changes with them, without reading gigabytes.

    Covers name, size, and one mebibyte at the start (all keys and shapes), middle and end of every
    safetensors file.
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


def safetensors_header(file: Path) -> dict[str, Any]:
    """JSON header of a safetensors file without its metadata: dtype, shape and offsets of every
    tensor. Needs no library.

    Raises:
        WeightsInvalid: the file is not safetensors, or its length differs from the header's.
    """
    size = file.stat().st_size
    with file.open("rb") as opened:
        start = opened.read(8)
        length = int.from_bytes(start, "little") if len(start) == 8 else size
        if length > size - 8:
            raise WeightsInvalid(
                f"{file} is not a safetensors file, or was cut off within its header."
            )
        try:
            header: dict[str, Any] = json.loads(opened.read(length))
            header.pop("__metadata__", None)
            expected = (
                8 + length + max((value["data_offsets"][1] for value in header.values()), default=0)
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise WeightsInvalid(f"{file} has a damaged header: {error}") from error
    if size != expected:
        raise WeightsInvalid(f"{file} has {size} bytes, but its header implies {expected}.")
    return header


def stored_numbers(folder: Path) -> int:
    """Number of values in all checkpoints of a folder and its sub-folders, from their headers."""
    files = (file for file in folder.rglob("*.safetensors"))
    return sum(
        math.prod(value["shape"]) for file in files for value in safetensors_header(file).values()
    )


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
        raise WeightsInvalid(
            f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from error
