"""The process that opens pictures from outside: ``python -m service.uploads.decode_process PIXELS
BYTES SECONDS``.

Pictures are read by a child, forked with everything imported, which limits its own memory and time
before it looks at the first byte. It serves one client's proper pictures as they come, and ends
with the first other client's, large or refused one: nobody's file meets a process that another's
may have harmed.

On standard input: :func:`question_head` and a file; on standard output: a length (8 bytes, big
endian) and the answer, one line of JSON and, when all is well and it is wanted, a PNG without
metadata. It ends with its input.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from PIL import Image, PngImagePlugin

from aps_core.errors import ImageRejected
from aps_core.imaging.images import Picture, mask_coverage, open_image
from service.uploads import png

LENGTH_BYTES = 8
KILLED = b'{"killed": true}\n'
"""The answer when the child did not live to give one."""

_QUESTION = struct.Struct(">QQ?")
_ANSWER = struct.Struct(">Q?")
_LARGE_KILOBYTES = 150_000
"""A child that has used this much memory is not kept."""
_LARGE_FILE, _NICENESS = 1_000_000, 10
"""Files of more bytes leave the processor to smaller ones and to the API."""


def question_head(length: int, owner: int, pixels: bool = True) -> bytes:
    """What the process reads before a file: its length, a 64-bit number that stands for its client,
    whether the picture is wanted, or only what its mask covers.
    """
    return _QUESTION.pack(length, owner, pixels)


def tenant_number(tenant: str) -> int:
    """What stands for a client where its name does not matter."""
    return int.from_bytes(hashlib.sha256(tenant.encode()).digest()[:8], "big")


@dataclass
class _Child:
    pid: int
    owner: int
    questions: BinaryIO
    answers: BinaryIO

    def ask(self, data: bytes, pixels: bool) -> tuple[bytes, bool]:
        """The answer, empty when it died over it, and whether it may be asked again."""
        with contextlib.suppress(BrokenPipeError):
            self.questions.write(question_head(len(data), self.owner, pixels))
            self.questions.write(data)
            self.questions.flush()
        head = self.answers.read(_ANSWER.size)
        if len(head) < _ANSWER.size:
            return b"", False
        length, again = _ANSWER.unpack(head)
        answer = self.answers.read(length)
        return (answer, again) if len(answer) == length else (b"", False)


def serve(
    requests: BinaryIO, answers: BinaryIO, max_pixels: int, address_space: int, seconds: int
) -> None:
    """Answers until the requests end."""
    # no text of a picture is kept anyway
    PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY = 1 << 20
    # Ctrl+C is for the API, which then ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child: _Child | None = None
    while head := requests.read(_QUESTION.size):
        length, owner, pixels = _QUESTION.unpack(head)
        data = requests.read(length)
        if child is not None and child.owner != owner:
            _end(child)
            child = None
        if child is None:
            child = _forked(
                owner,
                lambda data, pixels: _read(data, pixels, max_pixels),
                address_space,
                seconds,
            )
        answer, again = child.ask(data, pixels)
        if not again:
            _end(child)
            child = None
        del data
        answers.write(len(answer or KILLED).to_bytes(LENGTH_BYTES, "big"))
        answers.write(answer or KILLED)
        answers.flush()
        del answer


def _end(child: _Child) -> None:
    os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)
    with contextlib.suppress(BrokenPipeError):
        child.questions.close()
    child.answers.close()


Read = Callable[[bytes, bool], tuple[bytes, bool]]


def _forked(owner: int, read: Read, address_space: int, seconds: int) -> _Child:
    (asked, ask), (answered, answer) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for inherited in (0, 1, ask, answered):
                os.close(inherited)
            for limit, value in (("AS", address_space), ("CORE", 0), ("FSIZE", 0)):
                resource.setrlimit(getattr(resource, f"RLIMIT_{limit}"), (value, value))
            with open(asked, "rb") as questions, open(answer, "wb") as answers:
                _work(questions, answers, read, seconds)
        finally:
            os._exit(1)  # whatever happened: the parent knows from the answer
    os.close(asked)
    os.close(answer)
    return _Child(pid, owner, open(ask, "wb"), open(answered, "rb"))


def _work(questions: BinaryIO, answers: BinaryIO, read: Read, seconds: int) -> None:
    """What a child does until its parent has had enough."""
    while head := questions.read(_QUESTION.size):
        until = int(time.process_time()) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
        length, _, pixels = _QUESTION.unpack(head)
        large = length > _LARGE_FILE
        if large:
            os.nice(_NICENESS)  # for good, so this child reads no other
        answer, proper = read(questions.read(length), pixels)
        again = (
            proper
            and not large
            and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < _LARGE_KILOBYTES
        )
        answers.write(_ANSWER.pack(len(answer), again) + answer)
        answers.flush()


def _read(data: bytes, pixels: bool, max_pixels: int) -> tuple[bytes, bool]:
    """The answer, and whether the picture was taken."""
    if not pixels:  # a PNG of ours, written by one of these processes
        stored = Picture(Image.open(io.BytesIO(data), formats=["PNG"]))
        return json.dumps({"known": mask_coverage(stored)}).encode() + b"\n", True
    try:
        picture = open_image(data, max_pixels)
    except ImageRejected as error:
        return json.dumps({"error": str(error), "code": error.code}).encode() + b"\n", False
    said = json.dumps({"known": mask_coverage(picture)}).encode() + b"\n"
    return said + png.encode(picture.image), True


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, *(int(word) for word in sys.argv[1:4]))
