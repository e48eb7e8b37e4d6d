"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from aps_client.errors import NotWritten


@contextmanager
def writing(name: str | Path) -> Iterator[None]:
    """Errors of writing name the file.

    Raises:
        NotWritten: in place of an ``OSError`` inside.
    """
    try:
        yield
    except OSError as error:
        raise NotWritten(f"{name} could not be written: {error.strerror or error}.") from error


def write_whole(files: Mapping[Path, bytes]) -> None:
    """Writes files so that none is ever there in part: all under temporary names beside them, which
    are then renamed in the order of ``files``. If one cannot be written, none is.

    Raises:
        NotWritten: a file cannot be written.
    """
    parts: dict[Path, Path] = {}
    try:
        for path, data in files.items():
            with writing(path):
                if path.exists() and not path.is_file():  # a device or a pipe stays what it is
                    path.write_bytes(data)
                    continue
                parts[path] = _followed(path).with_name(f".{secrets.token_hex(8)}.part")
                parts[path].write_bytes(data)
        for path, part in parts.items():
            with writing(path):
                part.replace(_followed(path))
    finally:
        for part in parts.values():
            with suppress(OSError):  # those that were renamed are gone
                part.unlink()


def _followed(path: Path) -> Path:
    """The file that is written to: of a symbolic link, its target."""
    return Path(os.path.realpath(path))
