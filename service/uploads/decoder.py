"""Pictures from outside: read in processes of their own, under limits, and written anew.

What a client sent is never stored and never opened in this process. A child with bounded memory and
time (:mod:`service.uploads.decode_process`) turns it into a plain PNG without metadata.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import cached_property
from queue import Empty, LifoQueue

from PIL import Image

from aps_core.errors import ImageRejected, ImageTooLarge
from aps_core.imaging.images import Picture
from service.api.problems import BodyTooLarge, Busy, MalformedBody
from service.settings import Settings
from service.telemetry import metrics
from service.uploads.decode_process import LENGTH_BYTES, question

CONCURRENT_DECODES = max(2, min(8, os.cpu_count() or 2))


@dataclass(frozen=True)
class Upload:
    """A picture that can be trusted: a PNG of ours."""

    png: bytes
    holder: str = ""
    """The job or upload that has it already, if one does."""

    @cached_property
    def sha256(self) -> str:
        """Hash of the PNG."""
        return hashlib.sha256(self.png).hexdigest()

    @cached_property
    def picture(self) -> Picture:
        """The picture; its pixels are read when they are asked for."""
        return Picture(Image.open(io.BytesIO(self.png), formats=["PNG"]))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.picture.width, self.picture.height


class Decoder:
    """Reads uploaded pictures in a few processes that are kept for the next ones."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._idle: LifoQueue[subprocess.Popen[bytes] | None] = LifoQueue()
        for _ in range(CONCURRENT_DECODES):
            self._idle.put(None)  # started when needed

    def start(self) -> None:
        """Starts one process now, so that the first picture need not wait for it."""
        process = self._idle.get()
        self._idle.put(process or self._started())

    def close(self) -> None:
        """Ends the processes that are idle; busy ones end with this process."""
        while not self._idle.empty():
            if (process := self._idle.get()) is not None:
                _end(process)

    def sanitise(self, data: bytes, name: str, tenant: str = "") -> Upload:
        """Reads an uploaded picture; ``name`` is the part it came in, for messages, ``tenant`` the
        client whose it is.

        Raises:
            ImageRejected: it is no picture we read, or breaks a limit.
            BodyTooLarge: the file has too many bytes.
            Busy: too many uploads are being read.
        """
        if len(data) > self.settings.max_upload_bytes:
            raise BodyTooLarge(
                f"'{name}' has {len(data)} bytes; the limit is {self.settings.max_upload_bytes}."
            )
        started = time.perf_counter()
        answer, _, png = self._ask(data, _number(tenant)).partition(b"\n")
        said = json.loads(answer or b'{"killed": true}')
        outcome = next((word for word in ("killed", "error") if word in said), "read")
        metrics.DECODE_TIME.labels(outcome).observe(time.perf_counter() - started)
        if "killed" in said:
            raise ImageRejected(f"'{name}' could not be read within the limits on memory and time.")
        if "error" in said:
            kind = ImageTooLarge if said["code"] == ImageTooLarge.code else ImageRejected
            raise kind(f"'{name}': {said['error']}", said["code"])
        return Upload(png)

    def _ask(self, data: bytes, owner: int) -> bytes:
        """The answer of a process that is free; empty when it ended, or had to be ended."""
        try:
            process = self._idle.get(timeout=self.settings.decode_seconds)
        except Empty as error:
            raise Busy("Too many pictures are being read; try again.") from error
        kept: subprocess.Popen[bytes] | None = None
        try:
            process = process or self._started()
            answer = _exchange(process, question(data, owner), 2 * self.settings.decode_seconds)
            if answer:
                kept = process
            else:
                _end(process)
            return answer
        finally:
            self._idle.put(kept)

    def _started(self) -> subprocess.Popen[bytes]:
        limits = [
            str(limit)
            for limit in (
                self.settings.max_upload_pixels,
                self.settings.decode_bytes,
                self.settings.decode_seconds,
            )
        ]
        command = [sys.executable, "-m", "service.uploads.decode_process", *limits]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )


def _number(tenant: str) -> int:
    """What stands for a client where its name does not matter."""
    return int.from_bytes(hashlib.sha256(tenant.encode()).digest()[:8], "big")


def _exchange(process: subprocess.Popen[bytes], asked: bytes, seconds: float) -> bytes:
    """One question and its answer; empty when the process dies, which it does after ``seconds``."""
    assert process.stdin is not None
    assert process.stdout is not None
    late = threading.Timer(seconds, process.kill)
    late.start()
    try:
        process.stdin.write(asked)
        process.stdin.flush()
        return process.stdout.read(int.from_bytes(process.stdout.read(LENGTH_BYTES), "big"))
    except BrokenPipeError:
        return b""
    finally:
        late.cancel()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()  # closes the pipes, too


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
