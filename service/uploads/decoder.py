"""Decodes untrusted pictures in child processes under limits, and re-encodes them.

Files from clients are never stored, and never decoded in this process. A child process with bounded
memory and time (:mod:`service.uploads.decode_process`) converts each one to a PNG without metadata.
Both are streamed, so this process never holds a whole PNG, which may be a hundred times larger than
the file.
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
from dataclasses import dataclass
from typing import Any, cast

from aps_core.errors import ImageRejected, ImageTooLarge
from aps_core.identify.diagnosis import Diagnosis
from aps_core.imaging.images import MaskCoverage
from service.api.problems.errors import BodyTooLarge, Busy, MalformedBody
from service.settings import Settings
from service.telemetry import metrics
from service.uploads.decode_process import LENGTH_BYTES, Wish, question_head, tenant_number
from service.uploads.upload import CHUNK_BYTES, Source, Spool, Upload

CONCURRENT_DECODES = max(2, min(8, os.cpu_count() or 2))
_BASE64_CHUNK = 1 << 20
"""Characters decoded at a time, so that other threads wait a few milliseconds at most."""


@dataclass(eq=False)
class _Slot:
    """Place for one process, started at first use."""

    process: subprocess.Popen[bytes] | None = None
    tenant: str = ""
    """The tenant that it served last."""


class Decoder:
    """A pool of processes that decode uploaded pictures."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._idle = [_Slot() for _ in range(CONCURRENT_DECODES)]
        self._freed = threading.Condition()

    def start(self) -> None:
        """Starts two processes in advance, so that neither the first picture nor a second client's
        needs to wait for one.
        """
        for slot in self._idle[:2]:
            slot.process = slot.process or self._started()

    def close(self) -> None:
        """Stops the idle processes; busy ones exit with this process."""
        with self._freed:
            slots, self._idle = self._idle, []
        for slot in slots:
            if slot.process is not None:
                _end(slot.process)

    def _take(self, tenant: str) -> _Slot:
        """An idle slot: the tenant's own if possible, because a process that served another tenant
        must replace its child first; else one with a process; of these, the one idle for longest.

        Raises:
            Busy: none became idle in time.
        """
        with self._freed:
            if not self._freed.wait_for(lambda: self._idle, self.settings.decode_seconds):
                raise Busy("Too many pictures are being decoded; try again.")
            found = min(self._idle, key=lambda slot: (slot.tenant != tenant, slot.process is None))
            self._idle.remove(found)
            found.tenant = tenant
            return found

    def _give_back(self, slot: _Slot) -> None:
        with self._freed:
            self._idle.append(slot)
            self._freed.notify()

    def sanitise(self, data: Source, name: str, tenant: str = "") -> Upload:
        """Decodes an uploaded picture. ``name`` is its field, for messages, or empty if it is the
        only picture; ``tenant`` its owner.

        Raises:
            ImageRejected: it is not a supported picture, or exceeds a limit.
            BodyTooLarge: the file has too many bytes.
            Busy: too many uploads are being decoded.
        """
        said, png = self._ask(data, self._checked_size(data, name), name, tenant, "picture")
        return png.upload(said["known"])

    def diagnosis(self, data: Source, tenant: str = "") -> Diagnosis:
        """What seems to have happened to an uploaded picture.

        Raises:
            ImageRejected, BodyTooLarge, Busy: see :meth:`sanitise`.
        """
        said, _ = self._ask(data, self._checked_size(data, ""), "", tenant, "diagnosis")
        return Diagnosis.model_validate(said)

    def _checked_size(self, data: Source, name: str) -> int:
        size = _size(data)
        if size > self.settings.max_upload_bytes:
            raise BodyTooLarge(
                f"{_subject(name)} has {size} bytes; the limit is {self.settings.max_upload_bytes}."
            )
        return size

    def coverage(self, stored: Upload, name: str, tenant: str = "") -> MaskCoverage:
        """How much of a stored picture its mask keeps.

        Raises:
            ImageRejected, Busy: see :meth:`sanitise`.
        """
        said, _ = self._ask(stored.file, stored.length, name, tenant, "coverage")
        return cast(MaskCoverage, said["known"])

    def kernel_refusal(self, stored: Upload, tenant: str = "") -> str:
        """Why a stored picture is not a blur kernel; '' if it is one.

        Raises:
            ImageRejected, Busy: see :meth:`sanitise`.
        """
        said, _ = self._ask(stored.file, stored.length, "kernel", tenant, "kernel")
        return str(said["refusal"])

    def shows_text(self, stored: Upload, name: str, tenant: str = "") -> bool:
        """Whether a stored picture is probably a page or screen.

        Raises:
            ImageRejected, Busy: see :meth:`sanitise`.
        """
        said, _ = self._ask(stored.file, stored.length, name, tenant, "text")
        return bool(said["text"])

    def _ask(
        self, data: Source, size: int, name: str, tenant: str, wish: Wish
    ) -> tuple[dict[str, Any], Spool]:
        """The process's answer about a picture, and the PNG if that is the wish."""
        started = time.perf_counter()
        slot = self._take(tenant)
        process, slot.process = slot.process, None
        said: dict[str, Any] = {"killed": True}
        png = Spool()
        try:
            process = process or self._started()
            head = question_head(size, tenant_number(tenant), wish)
            answer = _exchange(process, head, data, 2 * self.settings.decode_seconds, png)
            if answer is None:
                _end(process)
            else:
                said, slot.process = answer, process
        finally:
            self._give_back(slot)
        outcome = next((word for word in ("killed", "error") if word in said), "read")
        metrics.DECODE_TIME.labels(outcome).observe(time.perf_counter() - started)
        if outcome != "read":
            png.close()
        if "killed" in said:
            raise ImageRejected(
                f"{_subject(name)} could not be decoded within the limits on memory and time."
            )
        if "error" in said:
            kind = ImageTooLarge if said["code"] == ImageTooLarge.code else ImageRejected
            raise kind(f"'{name}': {said['error']}" if name else said["error"], said["code"])
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


def _subject(name: str) -> str:
    return f"'{name}'" if name else "The picture"


def _exchange(
    process: subprocess.Popen[bytes], head: bytes, data: Source, seconds: float, png: Spool
) -> dict[str, Any] | None:
    """Sends one file and receives the answer, writing the picture to ``png``. None if the process
    dies; it is killed after ``seconds``.
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
    process.communicate()  # also closes the pipes


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
    """Decodes a ``data:...;base64,...`` URI.

    Raises:
        MalformedBody: it is not a valid base64 data URI.
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
