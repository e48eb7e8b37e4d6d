"""Pictures from outside: read in processes of their own, under limits, and written anew.

What a client sent is never stored and never opened in this process. A child with bounded memory and
time (:mod:`service.uploads.decode_process`) turns it into a plain PNG without metadata. Neither the
file nor the PNG, which may be a hundred times larger, is ever whole in this process's memory.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from queue import Empty, LifoQueue
from typing import Any, cast

from aps_core.errors import ImageRejected, ImageTooLarge
from aps_core.imaging.images import Coverage
from service.api.problems import BodyTooLarge, Busy, MalformedBody
from service.settings import Settings
from service.telemetry import metrics
from service.uploads.decode_process import LENGTH_BYTES, question_head, tenant_number
from service.uploads.upload import CHUNK_BYTES, Source, Spool, Upload

CONCURRENT_DECODES = max(2, min(8, os.cpu_count() or 2))
_BASE64_CHUNK = 1 << 20
"""Characters decoded at a time, so that no other thread waits longer than a few milliseconds."""


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

    def sanitise(self, data: Source, name: str, tenant: str = "") -> Upload:
        """Reads an uploaded picture; ``name`` is the part it came in, for messages, ``tenant`` the
        client whose it is.

        Raises:
            ImageRejected: it is no picture we read, or breaks a limit.
            BodyTooLarge: the file has too many bytes.
            Busy: too many uploads are being read.
        """
        size = _size(data)
        if size > self.settings.max_upload_bytes:
            raise BodyTooLarge(
                f"'{name}' has {size} bytes; the limit is {self.settings.max_upload_bytes}."
            )
        said, png = self._ask(data, size, name, tenant, pixels=True)
        return png.upload(said["known"])

    def coverage(self, stored: Upload, name: str, tenant: str = "") -> Coverage:
        """How much of a stored picture its mask leaves as it is.

        Raises:
            ImageRejected, Busy: see :meth:`sanitise`.
        """
        said, _ = self._ask(stored.file, stored.length, name, tenant, pixels=False)
        return cast(Coverage, said["known"])

    def _ask(
        self, data: Source, size: int, name: str, tenant: str, *, pixels: bool
    ) -> tuple[dict[str, Any], Spool]:
        """What a process says of a picture and, when asked for its ``pixels``, the PNG."""
        started = time.perf_counter()
        try:
            process = self._idle.get(timeout=self.settings.decode_seconds)
        except Empty as error:
            raise Busy("Too many pictures are being read; try again.") from error
        said: dict[str, Any] = {"killed": True}
        png = Spool()
        kept: subprocess.Popen[bytes] | None = None
        try:
            process = process or self._started()
            head = question_head(size, tenant_number(tenant), pixels)
            answer = _exchange(process, head, data, 2 * self.settings.decode_seconds, png)
            if answer is None:
                _end(process)
            else:
                said, kept = answer, process
        finally:
            self._idle.put(kept)
        outcome = next((word for word in ("killed", "error") if word in said), "read")
        metrics.DECODE_TIME.labels(outcome).observe(time.perf_counter() - started)
        if outcome != "read":
            png.close()
        if "killed" in said:
            raise ImageRejected(f"'{name}' could not be read within the limits on memory and time.")
        if "error" in said:
            kind = ImageTooLarge if said["code"] == ImageTooLarge.code else ImageRejected
            raise kind(f"'{name}': {said['error']}", said["code"])
        return said, png

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


def _exchange(
    process: subprocess.Popen[bytes], head: bytes, data: Source, seconds: float, png: Spool
) -> dict[str, Any] | None:
    """One question and its answer, whose picture goes into ``png``; None when the process dies,
    which it does after ``seconds``.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    late = threading.Timer(seconds, process.kill)
    late.start()
    try:
        process.stdin.write(head)
        for chunk in _chunks(data):
            process.stdin.write(chunk)
        process.stdin.flush()
        left = int.from_bytes(process.stdout.read(LENGTH_BYTES), "big")
        line = process.stdout.readline(left)
        left -= len(line)
        while left > 0 and (chunk := process.stdout.read(min(left, CHUNK_BYTES))):
            png.write(chunk)
            left -= len(chunk)
    except BrokenPipeError:
        return None
    else:
        answer: dict[str, Any] = json.loads(line) if line and not left else {}
        return answer or None
    finally:
        late.cancel()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()  # closes the pipes, too


def _size(data: Source) -> int:
    return len(data) if isinstance(data, bytes) else data.seek(0, os.SEEK_END)


def _chunks(data: Source) -> Iterator[bytes]:
    if isinstance(data, bytes):
        yield data
        return
    data.seek(0)
    while chunk := data.read(CHUNK_BYTES):
        yield chunk


def from_data_uri(text: object, name: str) -> bytes:
    """The bytes of a ``data:...;base64,...`` URI.

    Raises:
        MalformedBody: it is not one.
    """
    if not isinstance(text, str) or not text.startswith("data:"):
        raise MalformedBody(f"'{name}' must be a data URI: data:image/png;base64,...")
    comma = text.find(",", 0, 200)
    if comma < 0 or not text[:comma].endswith(";base64"):
        raise MalformedBody(f"'{name}' must be a base64 data URI: data:image/png;base64,...")
    starts = range(comma + 1, len(text), _BASE64_CHUNK)
    try:
        return b"".join(_decoded(text, start) for start in starts)
    except (binascii.Error, ValueError) as error:
        raise MalformedBody(f"'{name}' is not valid base64: {error}") from error


def _decoded(text: str, start: int) -> bytes:
    end = start + _BASE64_CHUNK
    data = base64.b64decode(text[start:end], validate=True)
    if end < len(text) and len(data) * 4 != _BASE64_CHUNK * 3:
        raise ValueError("Excess data after padding")
    return data
