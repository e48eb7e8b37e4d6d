"""The process that decodes untrusted pictures: ``python -m service.uploads.decode_process PIXELS
BYTES SECONDS``.

A forked child with everything imported decodes the pictures. It limits its own memory and CPU time
before it reads the first byte. A child is reused for further pictures of the same client, and
replaced after a large or refused picture and before another client's. So no file is read by a
process that another client's file may have compromised.

Standard input: :func:`question_head` and a file, repeatedly. Standard output: a length (8 bytes,
big endian) and the answer: one line of JSON, followed on success and if requested by a PNG. The
process exits at the end of its input.
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
from typing import BinaryIO, Literal, get_args

from PIL import Image, PngImagePlugin

from aps_core.errors import ImageRejected, InvalidSpec
from aps_core.identify.diagnosis import diagnose, shows_text
from aps_core.imaging.images import Picture, mask_coverage, open_image
from aps_core.operators.kernel_blur import kernel_rows
from service.uploads import png

LENGTH_BYTES = 8
KILLED = b'{"killed": true}\n'
"""The answer when the child was killed before it could give one."""

Wish = Literal["picture", "coverage", "kernel", "text", "diagnosis"]
"""What is asked about a file: the picture itself, its mask coverage, why it is not a blur kernel,
whether it is a page or screen, or its diagnosis."""
_WISHES: tuple[Wish, ...] = get_args(Wish)

_QUESTION = struct.Struct(">QQB")
_ANSWER = struct.Struct(">Q?")
_LARGE_KILOBYTES = 150_000
"""A child whose peak memory exceeds this is not reused."""
_LARGE_FILE, _NICENESS = 1_000_000, 10
"""Files larger than this, in bytes, are decoded at a lower CPU priority."""


def question_head(length: int, owner: int, wish: Wish = "picture") -> bytes:
    """Header sent before a file.

    Args:
        length: Length of the file in bytes.
        owner: :func:`tenant_number` of the client.
        wish: What to answer.
    """
    return _QUESTION.pack(length, owner, _WISHES.index(wish))


def tenant_number(tenant: str) -> int:
    """64-bit hash that identifies a client to the decoding process."""
    return int.from_bytes(hashlib.sha256(tenant.encode()).digest()[:8], "big")


@dataclass
class _Child:
    pid: int
    owner: int
    questions: BinaryIO
    answers: BinaryIO

    def ask(self, data: bytes, wish: Wish) -> tuple[bytes, bool]:
        """Returns the answer (empty if the child died) and whether the child may be reused."""
        with contextlib.suppress(BrokenPipeError):
            self.questions.write(question_head(len(data), self.owner, wish))
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
    # small limits suffice, as text chunks of uploads are discarded anyway
    PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY = 1 << 20
    # Ctrl+C is for the API, which then ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child: _Child | None = None
    while head := requests.read(_QUESTION.size):
        length, owner, number = _QUESTION.unpack(head)
        data = requests.read(length)
        if child is not None and child.owner != owner:
            _end(child)
            child = None
        if child is None:
            child = _forked(
                owner,
                lambda data, wish: _read(data, wish, max_pixels),
                address_space,
                seconds,
            )
        answer, again = child.ask(data, _WISHES[number])
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


Read = Callable[[bytes, Wish], tuple[bytes, bool]]


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
            os._exit(1)  # the parent detects failures by the missing answer
    os.close(asked)
    os.close(answer)
    return _Child(pid, owner, open(ask, "wb"), open(answered, "rb"))


def _work(questions: BinaryIO, answers: BinaryIO, read: Read, seconds: int) -> None:
    """Main loop of a child, until its parent closes the pipe or kills it."""
    while head := questions.read(_QUESTION.size):
        until = int(time.process_time()) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
        length, _, number = _QUESTION.unpack(head)
        large = length > _LARGE_FILE
        if large:
            os.nice(_NICENESS)  # cannot be undone, so this child is not reused
        answer, proper = read(questions.read(length), _WISHES[number])
        again = (
            proper
            and not large
            and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < _LARGE_KILOBYTES
        )
        answers.write(_ANSWER.pack(len(answer), again) + answer)
        answers.flush()


def _kernel_refusal(picture: Picture) -> str:
    try:
        kernel_rows(picture)
    except InvalidSpec as error:
        return str(error)
    return ""


_OF_STORED: dict[Wish, tuple[str, Callable[[Picture], str | bool]]] = {
    "coverage": ("known", mask_coverage),
    "kernel": ("refusal", _kernel_refusal),
    "text": ("text", shows_text),
}
"""What is said about stored pictures, and under which name."""


def _read(data: bytes, wish: Wish, max_pixels: int) -> tuple[bytes, bool]:
    """Returns the answer and whether the picture was accepted."""
    if wish in _OF_STORED:  # a PNG written by one of these processes
        name, told = _OF_STORED[wish]
        stored = Picture(Image.open(io.BytesIO(data), formats=["PNG"]))
        return json.dumps({name: told(stored)}).encode() + b"\n", True
    try:
        if wish == "diagnosis":
            return diagnose(data, max_pixels).model_dump_json().encode() + b"\n", True
        picture = open_image(data, max_pixels)
    except ImageRejected as error:
        return json.dumps({"error": str(error), "code": error.code}).encode() + b"\n", False
    said = json.dumps({"known": mask_coverage(picture)}).encode() + b"\n"
    return said + png.encode(picture), True


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, *(int(word) for word in sys.argv[1:4]))
