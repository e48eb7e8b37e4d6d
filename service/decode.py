"""The child that opens a picture from outside: ``python -m service.decode PIXELS BYTES SECONDS``.

Reads the file on standard input; answers with one line of JSON and, when all is well, a PNG without
metadata. It limits its own memory and time before it looks at the first byte.
"""

from __future__ import annotations

import io
import json
import resource
import sys
import warnings
from typing import Any

from PIL import Image, ImageFile, ImageOps

FORMATS = ("PNG", "JPEG", "WEBP")
KEPT_MODES = ("RGB", "RGBA", "L", "LA", "I;16")
"""Modes a PNG keeps as they are; palettes become RGB(A), CMYK becomes RGB, anything else RGB."""


class Refused(Exception):
    """Why a picture is not taken."""

    def __init__(self, message: str, code: str = "image_rejected") -> None:
        super().__init__(message)
        self.code = code


def main(pixels: int, address_space: int, seconds: int) -> None:
    """Turns standard input into the answer on standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    Image.MAX_IMAGE_PIXELS = pixels
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    out = sys.stdout.buffer
    try:
        image = decode(sys.stdin.buffer.read(), pixels)
    except Refused as refusal:
        out.write(json.dumps({"error": str(refusal), "code": refusal.code}).encode() + b"\n")
        return
    header = {"width": image.width, "height": image.height, "has_alpha": image.mode in ("RGBA", "LA")}
    out.write(json.dumps(header).encode() + b"\n")
    image.save(out, "PNG", compress_level=1)


def decode(data: bytes, pixels: int) -> Image.Image:
    """The picture, upright, in a mode PNG can keep.

    Raises:
        Refused: the file is no picture we read, is damaged, moves, or has too many pixels.
    """
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise Refused(f"the picture has more than {pixels} pixels.", "image_too_large") from error
    except (OSError, ValueError, SyntaxError) as error:
        raise Refused(f"this is not a picture in one of the formats {', '.join(FORMATS)}.") from error
    if image.width * image.height > pixels:
        raise Refused(f"the picture is {image.width}x{image.height}; at most {pixels} pixels are read.", "image_too_large")
    if getattr(image, "n_frames", 1) > 1:
        raise Refused("the picture is animated; send a single frame.")
    try:
        image.load()
        return _plain(ImageOps.exif_transpose(image))
    except (OSError, ValueError, SyntaxError, MemoryError) as error:
        raise Refused(f"the {image.format} file is damaged or incomplete: {error}") from error


def _plain(image: Image.Image) -> Image.Image:
    """Only pixels: no metadata, no palette."""
    if image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    elif image.mode not in KEPT_MODES:
        image = image.convert("L" if image.mode == "1" else "RGB")
    bare = Image.new(image.mode, image.size)
    bare.paste(image)
    return bare


def _arguments() -> Any:
    return tuple(int(word) for word in sys.argv[1:4])


if __name__ == "__main__":
    main(*_arguments())
