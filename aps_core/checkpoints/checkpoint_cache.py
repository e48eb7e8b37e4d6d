"""Checks which checkpoints of the manifest are installed, and whether they are complete.

Needs no torch. The library itself never downloads; only ``aps weights fetch NAME`` does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aps_core.checkpoints.files import checkpoint_files
from aps_core.checkpoints.manifest import CHECKPOINTS, TEXT, Checkpoint, named
from aps_core.checkpoints.metadata import safetensors_header
from aps_core.errors import InvalidSpec, WeightsInvalid, WeightsMissing

WEIGHTS_DIR = "APS_WEIGHTS_DIR"
"""Environment variable with the folder of downloaded weights, which has one sub-folder per
checkpoint.
"""

State = Literal["present", "missing", "incomplete", "damaged"]


@dataclass(frozen=True)
class Check:
    """Installation state of a checkpoint."""

    name: str
    folder: Path
    state: State
    reasons: tuple[str, ...] = ()


def root() -> Path:
    """The folder of downloaded weights: ``APS_WEIGHTS_DIR``, else ``aps/weights`` in the user's
    cache.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get(WEIGHTS_DIR) or Path(cache) / "aps" / "weights").expanduser()


def check(name: str, hashes: bool = False) -> Check:
    """Checks that a checkpoint is installed: files, their lengths and, with ``hashes``, their
    published SHA-256.

    Without ``hashes`` only headers are read, which takes milliseconds for any size. What cannot be
    read, or vanishes meanwhile, is incomplete.

    Raises:
        InvalidSpec: no checkpoint has that name.
    """
    entry = _entry(name)
    try:
        return _checked(entry, hashes)
    except OSError as error:
        folder = root() / name
        return Check(name, folder, "incomplete", (f"{folder} cannot be read: {error}.",))


def _checked(entry: Checkpoint, hashes: bool) -> Check:
    name, folder = entry.name, root() / entry.name
    if not folder.is_dir():
        return Check(name, folder, "missing", (f"{folder} does not exist.",))
    absent = [
        f"{folder / file} does not exist."
        for file in entry.requires
        if not (folder / file).is_file()
    ]
    damaged: list[str] = []
    for part in entry.parts:
        try:
            for file in checkpoint_files(folder / part):
                safetensors_header(file)
        except WeightsMissing as error:
            absent.append(str(error))
        except WeightsInvalid as error:
            damaged.append(str(error))
    if hashes and not absent:
        damaged += [
            f"{folder / file} has another SHA-256 than published."
            for file, known in entry.sha256.items()
            if sha256(folder / file) != known
        ]
    state: State = "damaged" if damaged else "incomplete" if absent else "present"
    return Check(name, folder, state, (*damaged, *absent))


def _entry(name: str) -> Checkpoint:
    """A checkpoint of the manifest, or another folder among them: a user's own reward model or LoRA
    adapter.
    """
    folder = root() / name
    # these two, unlike pathlib's, also answer about folders that may not be read
    if name in CHECKPOINTS or not os.path.isdir(folder):
        return named(name)
    adapter = os.path.isfile(folder / "adapter_config.json")
    return Checkpoint(
        name=name,
        what="own checkpoint",
        repo=None,
        bytes=0,
        bytes_known=False,
        licence="unknown",
        needed_by=("reward.model of text guidance",),
        requires=("adapter_model.safetensors",) if adapter else TEXT,
        parts=() if adapter else (".",),
    )


def path(name: str) -> Path:
    """Folder of a checkpoint that is complete according to its headers.

    Raises:
        InvalidSpec: no checkpoint has that name.
        WeightsMissing: it is absent or incomplete; the message explains how to install it.
        WeightsInvalid: one of its files is damaged.
    """
    found = check(name)
    if found.state == "present":
        return found.folder
    kind = WeightsInvalid if found.state == "damaged" else WeightsMissing
    raise kind(f"The weights '{name}' are {found.state}: {found.reasons[0]} {remedy(name)}")


def present() -> tuple[str, ...]:
    """Names of the installed checkpoints that are complete according to their headers, own ones
    last.
    """
    found = []
    for name in dict.fromkeys([*CHECKPOINTS, *_own()]):
        with suppress(InvalidSpec):  # an own folder was removed after it was listed
            if check(name).state == "present":
                found.append(name)
    return tuple(found)


def _own() -> list[str]:
    """Names of the folders that may hold a checkpoint; none if the root is absent or unreadable."""
    try:
        names = os.listdir(root())
    except OSError:
        return []
    return sorted(
        name
        for name in names
        if not name.startswith(".") and name != "lost+found" and os.path.isdir(root() / name)
    )


def require(names: Iterable[str]) -> None:
    """Checks that checkpoints are installed, before work that needs them.

    Raises:
        WeightsMissing, WeightsInvalid: the first checkpoint that is absent or damaged.
    """
    for name in names:
        path(name)


def missing(names: Iterable[str]) -> str | None:
    """Problem and remedy of the first unusable checkpoint; None if all are usable."""
    try:
        require(names)
    except (WeightsMissing, WeightsInvalid) as error:
        return str(error)
    return None


def remedy(name: str) -> str:
    """Instructions to install an absent checkpoint, or to complete an own one."""
    entry = _entry(name)
    if name not in CHECKPOINTS:
        return f"Put its complete files into {root() / name}, below {WEIGHTS_DIR}."
    note = ", which says how to convert the published pickle" if entry.convert else ""
    return f"Run: aps weights fetch {name}{note}. Target: {root() / name}, below {WEIGHTS_DIR}."


def sha256(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
