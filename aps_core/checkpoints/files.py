"""Finds and reads the tensors of a checkpoint: safetensors only, with every mismatch named in the
error. Never downloads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aps_core.checkpoints.metadata import read_json
from aps_core.errors import WeightsInvalid, WeightsMissing

if TYPE_CHECKING:
    import torch
    from torch import Tensor

EMBEDDED = Path(__file__).parents[1] / "embedded"
"""Weights shipped with the package."""

INDEX = "model.safetensors.index.json"
SINGLE_FILES = (
    "model.safetensors",
    "pytorch_model.safetensors",
    "diffusion_pytorch_model.safetensors",
)
"""File names of unsharded checkpoints: transformers, showlab/magvitv2, diffusers."""
PICKLES = (".bin", ".pth", ".pt", ".ckpt")
STORED_AS = ("F64", "F32", "F16", "BF16")


def refuse_pickle(path: Path) -> None:
    """Rejects a PyTorch pickle, because opening one can execute arbitrary code.

    Raises:
        WeightsInvalid: ``path`` is a pickle, bare or in PyTorch's zip archive; the message explains
            how to convert it.
    """
    with path.open("rb") as file:
        start = file.read(9)
    if start[8:] == b"{":  # safetensors: eight bytes of length, then JSON
        return
    if start[:4] == b"PK\x03\x04" or start[:1] == b"\x80":
        raise WeightsInvalid(
            f"{path} is a pickle, which can run code when it is opened. Convert it once, where that"
            " does no harm, with safetensors.torch.save_file(torch.load(file, weights_only=True),"
            " new_file) - of the tensors alone, should they lie deeper in it."
        )


def checkpoint_files(path: Path) -> dict[Path, list[str] | None]:
    """Safetensors files of a checkpoint, each with the keys listed in its index (None without an
    index).

    ``path`` is a file or a published folder: sharded with ``model.safetensors.index.json``, or one
    file named in :data:`SINGLE_FILES`.

    Raises:
        WeightsMissing: no checkpoint file exists.
        WeightsInvalid: there is only a pickle, or the index is damaged or names a missing file.
    """
    if path.is_dir():
        if (path / INDEX).is_file():
            return _shards(path / INDEX)
        single = next((path / name for name in SINGLE_FILES if (path / name).is_file()), None)
        if single is not None:
            return {single: None}
        pickles = [other for other in sorted(path.iterdir()) if other.suffix in PICKLES]
        wanted = f"{path} holds no {INDEX}, {', '.join(SINGLE_FILES[:-1])} or {SINGLE_FILES[-1]}."
    elif path.is_file():
        return {path: None}
    else:
        pickles = [other for suffix in PICKLES if (other := path.with_suffix(suffix)).is_file()]
        wanted = f"{path} does not exist."
    for other in pickles:
        refuse_pickle(other)
    raise WeightsMissing(wanted)


def _shards(index: Path) -> dict[Path, list[str] | None]:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise WeightsInvalid(f"{index} has no 'weight_map' from keys to files.")
    files: dict[Path, list[str] | None] = {}
    for key, name in sorted(places.items()):
        if not isinstance(name, str) or Path(name).name != name:
            raise WeightsInvalid(
                f"{index}: key '{key}' lies in {name!r}, which is not the name of a file beside it."
            )
        keys = files.setdefault(index.parent / name, [])
        assert keys is not None
        keys.append(key)
    for file, keys in files.items():
        if not file.is_file():
            raise WeightsInvalid(
                f"{file} does not exist, but {index.name} says it holds {len(keys or ())} tensors,"
                f" among them '{(keys or ['?'])[0]}'."
            )
    return files


def locate_tensors(
    path: Path,
    shapes: Mapping[str, Sequence[int]],
    ignore: tuple[str, ...] = (),
    rename: Callable[[str], str] = str,
) -> dict[str, tuple[Path, str]]:
    """File and stored key of every tensor named in ``shapes``; only headers are read.

    Raises:
        WeightsMissing, WeightsInvalid: see :func:`read_tensors`.
    """
    files = checkpoint_files(path)
    places: dict[str, tuple[Path, str]] = {}
    for file, promised in files.items():
        for stored, (shape, kind) in _header(file, promised).items():
            if stored.startswith(ignore or ("\0",)):
                continue
            key = rename(stored)
            if key not in shapes:
                raise WeightsInvalid(f"{file}: key '{stored}' is unexpected.")
            if key in places:
                raise WeightsInvalid(
                    f"{file}: key '{stored}' is also in {places[key][0].name}, as"
                    f" '{places[key][1]}'."
                )
            if shape != tuple(shapes[key]):
                raise WeightsInvalid(
                    f"{file}: '{stored}' has shape {shape}, expected {tuple(shapes[key])}."
                )
            if kind not in STORED_AS:
                raise WeightsInvalid(
                    f"{file}: '{stored}' is stored as {kind}; only {', '.join(STORED_AS)} are"
                    " numbers this model can use."
                )
            places[key] = (file, stored)
    whole = next(iter(files)) if len(files) == 1 else path / INDEX
    for key in sorted(shapes.keys() - places.keys()):
        raise WeightsInvalid(f"{whole}: key '{key}' is missing.")
    return places


def read_tensors(
    path: Path,
    shapes: Mapping[str, Sequence[int]],
    ignore: tuple[str, ...] = (),
    rename: Callable[[str], str] = str,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    rows: Mapping[str, slice] | None = None,
) -> dict[str, Tensor]:
    """Reads exactly the tensors named in ``shapes`` from a safetensors file or a published
    checkpoint folder.

    Keys and shapes are compared before anything is read. Tensors are then moved one by one to
    ``device`` and ``dtype`` (default: the stored one), so the host holds at most one of them
    besides the result.

    ``ignore`` lists prefixes of optional keys that are not read. ``rename`` maps a key in the file
    to the key in ``shapes``, for checkpoints published under several key names. ``rows`` names
    tensors of which only the given rows are read.

    Raises:
        WeightsMissing: there is no file.
        WeightsInvalid: a file is damaged or a pickle, index and files disagree, or a key is
            missing, unexpected, or of another shape; the message names them.
    """
    places = locate_tensors(path, shapes, ignore, rename)
    return {
        key: _read(file, stored, device, dtype, (rows or {}).get(key))
        for key, (file, stored) in places.items()
    }


def _header(file: Path, promised: list[str] | None) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every tensor in a file."""
    with _opened(file) as stored:
        found = {key: stored.get_slice(key) for key in stored.keys()}  # noqa: SIM118 - not a dict
        for key in sorted(found.keys() ^ set(found if promised is None else promised)):
            raise WeightsInvalid(
                f"{file}: key '{key}' is"
                f" {'not in the index' if key in found else 'not there, though the index says so'}."
            )
        return {key: (tuple(part.get_shape()), part.get_dtype()) for key, part in found.items()}


def _read(
    file: Path, key: str, device: torch.device | str, dtype: torch.dtype | None, rows: slice | None
) -> Tensor:
    # A file is mapped anew for every tensor: pages once read stay in memory as long as their
    # mapping does.
    with _opened(file, str(device)) as stored:
        tensor: Tensor = stored.get_slice(key)[rows] if rows is not None else stored.get_tensor(key)
        # A copy of its own, not a view of the file: a file replaced under a running process would
        # kill it.
        return tensor.to(device, dtype, copy=tensor.device.type == "cpu")


@contextmanager
def _opened(file: Path, device: str = "cpu") -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    refuse_pickle(file)
    try:
        with safe_open(file, framework="pt", device=device) as stored:
            yield stored
    except (SafetensorError, OSError) as error:
        raise WeightsInvalid(f"{file} is not a readable safetensors file: {error}") from error
