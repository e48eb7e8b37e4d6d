"""The child that opens a picture from outside: ``python -m service.decode PIXELS BYTES SECONDS``.

Reads the file on standard input; answers with one line of JSON and, when all is well, a PNG without
metadata. It limits its own memory and time before it looks at the first byte.
"""

from __future__ import annotations

import json
import resource
import sys

from aps_core.errors import ImageRejected
from aps_core.images import open_image


def main(max_pixels: int, address_space: int, seconds: int) -> None:
    """Turns standard input into the answer on standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    out = sys.stdout.buffer
    try:
        picture = open_image(sys.stdin.buffer.read(), max_pixels)
    except ImageRejected as error:
        out.write(json.dumps({"error": str(error), "code": error.code}).encode() + b"\n")
        return
    header = {"width": picture.width, "height": picture.height, "has_alpha": picture.has_alpha}
    out.write(json.dumps(header).encode() + b"\n")
    picture.image.save(out, "PNG", compress_level=1)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:4]))
