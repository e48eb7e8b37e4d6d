"""A decoded picture before it is stored; large ones are held in a temporary file, not in memory."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from PIL import Image

from aps_core.imaging.images import MaskCoverage, Picture

CHUNK_BYTES = 1 << 18
MEMORY_BYTES = 1 << 20
"""Larger files are spooled to disk."""

Source = bytes | BinaryIO
"""An uploaded file: its bytes, or an open file."""


def digest(source: Source) -> str:
    """SHA-256 of an uploaded file, in hexadecimal."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    found = hashlib.sha256()
    source.seek(0)
    while chunk := source.read(CHUNK_BYTES):
        found.update(chunk)
    return found.hexdigest()


@dataclass(frozen=True)
class Upload:
    """A sanitised picture: a PNG written by the decoder."""

    file: BinaryIO
    sha256: str
    """Hash of the PNG."""
    length: int
    """In bytes."""
    known: MaskCoverage | None = None
    """How much of it its mask keeps; None if its pixels have not been decoded."""
    holder: str = ""
    """The job or upload that already stores it; '' if there is none."""

    @cached_property
    def picture(self) -> Picture:
        """The picture, opened lazily: only size and mode are read, no pixels."""
        self.file.seek(0)
        return Picture(Image.open(self.file, formats=["PNG"]))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.picture.width, self.picture.height


class Spool:
    """Collects a PNG from the decoder; moves it to disk once it is large."""

    def __init__(self) -> None:
        self._file: BinaryIO = io.BytesIO()
        self._hash = hashlib.sha256()
        self._bytes = 0

    def write(self, chunk: bytes) -> None:
        """Appends a chunk."""
        if isinstance(self._file, io.BytesIO) and self._bytes + len(chunk) > MEMORY_BYTES:
            start = self._file.getbuffer()
            self._file = cast(BinaryIO, TemporaryFile())  # noqa: SIM115  whoever reads it closes it
            self._file.write(start)
        self._file.write(chunk)
        self._hash.update(chunk)
        self._bytes += len(chunk)

    def close(self) -> None:
        """Closes and discards the file."""
        self._file.close()

    def upload(self, known: MaskCoverage) -> Upload:
        """The completed upload, with its mask coverage."""
        return Upload(self._file, self._hash.hexdigest(), self._bytes, known)
