"""Which checkpoints of the manifest are on this machine, and whether they are whole.

Needs no torch. Nothing in the library downloads: ``aps weights fetch NAME`` does, when it is asked
to.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aps_core.checkpoints.files import checkpoint_files, safetensors_header
from aps_core.checkpoints.manifest import CHECKPOINTS, named
from aps_core.errors import WeightsInvalid, WeightsMissing

WEIGHTS_DIR = "APS_WEIGHTS_DIR"
"""Environment variable naming the folder of downloaded weights, one folder a checkpoint."""

State = Literal["present", "missing", "incomplete", "damaged"]


@dataclass(frozen=True)
class Check:
    """What is there of a checkpoint."""

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
    """Whether a checkpoint is here and whole: files, their lengths, and with ``hashes`` their
    published SHA-256.

    Without ``hashes`` only headers are read, so that it takes milliseconds for any size.

    Raises:
        InvalidSpec: there is no checkpoint of that name.
    """
    entry, folder = named(name), root() / name
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


def path(name: str) -> Path:
    """The folder of a checkpoint, which is there and whole as far as headers tell.

    Raises:
        InvalidSpec: there is no checkpoint of that name.
        WeightsMissing: it is absent or incomplete; the message says how to get it.
        WeightsInvalid: a file of it is damaged.
    """
    found = check(name)
    if found.state == "present":
        return found.folder
    kind = WeightsInvalid if found.state == "damaged" else WeightsMissing
    raise kind(f"The weights '{name}' are {found.state}: {found.reasons[0]} {remedy(name)}")


def present() -> tuple[str, ...]:
    """Names of the checkpoints that are here, whole as far as headers tell."""
    return tuple(name for name in CHECKPOINTS if check(name).state == "present")


def require(names: Iterable[str]) -> None:
    """Checks that checkpoints are here, before any work that needs them.

    Raises:
        WeightsMissing, WeightsInvalid: the first that is not.
    """
    for name in names:
        path(name)


def missing(names: Iterable[str]) -> str | None:
    """What is wrong with the first of these checkpoints that cannot be used, and what to do; None
    when all can.
    """
    try:
        require(names)
    except (WeightsMissing, WeightsInvalid) as error:
        return str(error)
    return None


def remedy(name: str) -> str:
    """What to do about an absent checkpoint."""
    entry = named(name)
    note = ", which says how to convert the published pickle" if entry.convert else ""
    return f"Run: aps weights fetch {name}{note}. Target: {root() / name}, below {WEIGHTS_DIR}."


def sha256(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
