"""Pictures from outside: read in a process of their own, under limits, and written anew.

What a client sent is never stored and never opened in this process. A short-lived child
(:mod:`service.decode`) with bounded memory and time turns it into a plain PNG without metadata.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import subprocess
import sys
import threading
from dataclasses import dataclass

from PIL import Image

from aps_core.errors import ImageRejected, ImageTooLarge
from aps_core.images import Picture
from service.problems import BodyTooLarge, Busy, MalformedBody
from service.settings import Settings

CONCURRENT_DECODES = 2
_slots = threading.BoundedSemaphore(CONCURRENT_DECODES)


@dataclass(frozen=True)
class Upload:
    """A picture that can be trusted: a PNG of ours."""

    png: bytes
    width: int
    height: int
    has_alpha: bool

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.width, self.height

    def picture(self) -> Picture:
        """The picture; its pixels are read when they are asked for."""
        return Picture(Image.open(io.BytesIO(self.png)))


def sanitise(data: bytes, name: str, settings: Settings) -> Upload:
    """Reads an uploaded picture; ``name`` is the part it came in, for messages.

    Raises:
        ImageRejected: it is no picture we read, or breaks a limit.
        BodyTooLarge: the file has too many bytes.
        Busy: too many uploads are being read.
    """
    if len(data) > settings.max_upload_bytes:
        raise BodyTooLarge(f"'{name}' has {len(data)} bytes; the limit is {settings.max_upload_bytes}.")
    if not _slots.acquire(timeout=settings.decode_seconds):
        raise Busy("Too many pictures are being read; try again.")
    limits = [str(limit) for limit in (settings.max_upload_pixels, settings.decode_bytes, settings.decode_seconds)]
    try:
        child = subprocess.run(
            [sys.executable, "-m", "service.decode", *limits], input=data, capture_output=True, timeout=2 * settings.decode_seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ImageRejected(f"'{name}' took too long to read.") from error
    finally:
        _slots.release()
    if child.returncode != 0:
        raise ImageRejected(f"'{name}' could not be read within the limits on memory and time.")
    header, _, png = child.stdout.partition(b"\n")
    answer = json.loads(header)
    if "error" in answer:
        kind = ImageTooLarge if answer["code"] == ImageTooLarge.code else ImageRejected
        raise kind(f"'{name}': {answer['error']}", answer["code"])
    return Upload(png, answer["width"], answer["height"], answer["has_alpha"])


def from_data_uri(text: object, name: str) -> bytes:
    """The bytes of a ``data:...;base64,...`` URI.

    Raises:
        MalformedBody: it is not one.
    """
    if not isinstance(text, str) or not text.startswith("data:"):
        raise MalformedBody(f"'{name}' must be a data URI: data:image/png;base64,...")
    head, comma, body = text.partition(",")
    if not comma or not head.endswith(";base64"):
        raise MalformedBody(f"'{name}' must be a base64 data URI: data:image/png;base64,...")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedBody(f"'{name}' is not valid base64: {error}") from error
