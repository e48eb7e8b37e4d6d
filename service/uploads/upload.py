"""A picture on its way into the store: its bytes are in a file, and in memory only while they are
few.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from PIL import Image

from aps_core.imaging.images import Coverage, Picture

CHUNK_BYTES = 1 << 18
MEMORY_BYTES = 1 << 20
"""Longer files go to disk."""

Source = bytes | BinaryIO
"""A file as it was sent: whole, or open for reading."""


def digest(source: Source) -> str:
    """SHA-256 of what was sent."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    found = hashlib.sha256()
    source.seek(0)
    while chunk := source.read(CHUNK_BYTES):
        found.update(chunk)
    return found.hexdigest()


@dataclass(frozen=True)
class Upload:
    """A picture that can be trusted: a PNG of ours."""

    file: BinaryIO
    sha256: str
    """Hash of the PNG."""
    length: int
    """In bytes."""
    known: Coverage | None = None
    """How much of it its mask leaves as it is, where its pixels have been read."""
    holder: str = ""
    """The job or upload that has it already, if one does."""

    @cached_property
    def picture(self) -> Picture:
        """The picture, of which only the head is read here: size and mode."""
        self.file.seek(0)
        return Picture(Image.open(self.file, formats=["PNG"]))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.picture.width, self.picture.height


class Spool:
    """Collects a PNG of ours, on disk once it is long."""

    def __init__(self) -> None:
        self._file: BinaryIO = io.BytesIO()
        self._hash, self._bytes = hashlib.sha256(), 0

    def write(self, chunk: bytes) -> None:
        """Adds to its end."""
        if isinstance(self._file, io.BytesIO) and self._bytes + len(chunk) > MEMORY_BYTES:
            start = self._file.getbuffer()
            self._file = cast(BinaryIO, TemporaryFile())  # noqa: SIM115  whoever reads it closes it
            self._file.write(start)
        self._file.write(chunk)
        self._hash.update(chunk)
        self._bytes += len(chunk)

    def close(self) -> None:
        """Drops it."""
        self._file.close()

    def upload(self, known: Coverage) -> Upload:
        """The whole."""
        return Upload(self._file, self._hash.hexdigest(), self._bytes, known)
