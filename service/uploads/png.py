"""A PNG encoder ten times as fast as the usual one: it uses one filter for all rows and a
compressor with vector instructions.
"""

from __future__ import annotations

import struct

import numpy as np
from isal import isal_zlib

from aps_core.imaging.images import STEPS, Picture

_KINDS = {"L": (8, 0), "I;16": (16, 0), "RGB": (8, 2), "LA": (8, 4), "RGBA": (8, 6)}
"""Bit depth and colour type of each mode."""
_UP = 2


def encode(picture: Picture) -> bytes:
    """Encodes a picture as PNG, slightly larger than with an optimizing encoder. All that it tells
    besides the pixels are the steps of the JPEG that they came from.
    """
    image, steps = picture.image, ",".join(map(str, picture.jpeg_steps or ()))
    depth, colour = _KINDS[image.mode]
    pixels = np.asarray(image)
    raw = (
        (pixels.astype(">u2") if depth == 16 else np.ascontiguousarray(pixels))
        .view(np.uint8)
        .reshape(image.height, -1)
    )
    rows = np.empty((image.height, raw.shape[1] + 1), np.uint8)
    rows[:, 0] = _UP
    rows[0, 1:] = raw[0]
    np.subtract(raw[1:], raw[:-1], out=rows[1:, 1:])
    packed = isal_zlib.compress(rows.data, 1)
    header = struct.pack(">IIBBBBB", image.width, image.height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + (_chunk(b"tEXt", f"{STEPS}\0{steps}".encode()) if steps else b"")
        + _chunk(b"IDAT", packed)
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return b"".join(
        (
            struct.pack(">I", len(data)),
            kind,
            data,
            struct.pack(">I", isal_zlib.crc32(data, isal_zlib.crc32(kind))),
        )
    )
