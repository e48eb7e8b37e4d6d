"""The process that opens pictures from outside: ``python -m service.decode PIXELS BYTES SECONDS``.

Each picture is read by a child of its own, forked with everything imported, which limits its own memory and
time before it looks at the first byte and ends with the picture. On standard input: a length (8 bytes, big
endian) and the file; on standard output: a length and the answer, one line of JSON and, when all is well, a
PNG without metadata. It ends with its input.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import BinaryIO

from PIL import PngImagePlugin

from aps_core.errors import ImageRejected
from aps_core.images import open_image
from service import png

LENGTH_BYTES = 8
KILLED = b'{"killed": true}\n'
"""The answer when the child did not live to give one."""


def serve(requests: BinaryIO, answers: BinaryIO, max_pixels: int, address_space: int, seconds: int) -> None:
    """Answers until the requests end."""
    PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY = 1 << 20  # no text of a picture is kept anyway
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the API, which then ends this process
    while head := requests.read(LENGTH_BYTES):
        answer = _in_child(requests.read(int.from_bytes(head, "big")), max_pixels, address_space, seconds)
        answers.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        answers.flush()


def _in_child(data: bytes, max_pixels: int, address_space: int, seconds: int) -> bytes:
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for inherited in (0, 1, receive):
                os.close(inherited)
            for limit, value in (("AS", address_space), ("CPU", seconds), ("CORE", 0), ("FSIZE", 0)):
                resource.setrlimit(getattr(resource, f"RLIMIT_{limit}"), (value, value))
            with open(send, "wb") as pipe:
                pipe.write(_read(data, max_pixels))
            status = 0
        finally:
            os._exit(status)  # whatever went wrong: the parent knows from the status
    os.close(send)
    with open(receive, "rb") as pipe:
        answer = pipe.read()
    _, ended = os.waitpid(child, 0)
    return answer if ended == 0 else KILLED


def _read(data: bytes, max_pixels: int) -> bytes:
    try:
        picture = open_image(data, max_pixels)
    except ImageRejected as error:
        return json.dumps({"error": str(error), "code": error.code}).encode() + b"\n"
    header = {"width": picture.width, "height": picture.height, "has_alpha": picture.has_alpha}
    return json.dumps(header).encode() + b"\n" + png.encode(picture.image)


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, *(int(word) for word in sys.argv[1:4]))
