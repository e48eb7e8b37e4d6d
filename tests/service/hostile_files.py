"""Deterministically generates more than a hundred malicious or damaged files."""

from __future__ import annotations

import io
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image, PngImagePlugin

from tests.stack import png

MAGIC = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, data: bytes) -> bytes:
    """A PNG chunk."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(
    width: int,
    height: int,
    pixels: bytes = b"",
    depth: int = 8,
    colour: int = 2,
    interlace: int = 0,
    extra: bytes = b"",
) -> bytes:
    """A PNG with arbitrary header values."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace))
    return MAGIC + header + extra + chunk(b"IDAT", zlib.compress(pixels, 9)) + chunk(b"IEND", b"")


def zeros(width: int, height: int, colour: int = 0) -> bytes:
    """A complete PNG with all pixels zero."""
    packer, row = zlib.compressobj(9), b"\0" * (width * (3 if colour == 2 else 1) + 1)
    packed = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0))
    return MAGIC + header + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def jpeg_of(width: int, height: int) -> bytes:
    """A JPEG with a wrong size in its header."""
    data = png(image_format="JPEG")
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


def webp_of(width: int, height: int) -> bytes:
    """An extended WebP with an empty canvas of the given size."""
    size = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    body = (
        b"WEBPVP8X"
        + struct.pack("<I", 10)
        + b"\0\0\0\0"
        + size
        + b"VP8L"
        + struct.pack("<I", 6)
        + b"/\0\0\0\0\0"
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def saved(image_format: str, **options: object) -> bytes:
    """A harmless picture in the given format."""
    out = io.BytesIO()
    Image.open(io.BytesIO(png(32, 32))).convert("RGB").save(out, image_format, **options)
    return out.getvalue()


def archive() -> bytes:
    """A zip archive with an HTML page."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("index.html", "<script>alert(1)</script>" * 100)
    return out.getvalue()


def text_bomb(kind: bytes) -> bytes:
    """A compressed text or colour profile that expands to 60 MB."""
    packed = zlib.compress(b"a" * 60_000_000, 9)
    head = b"Comment\0\1\0\0\0" if kind == b"iTXt" else b"Comment\0\0"
    return png_of(8, 8, b"\0" * 8 * 25, extra=chunk(kind, head + packed))


def truncated() -> Iterator[tuple[str, bytes]]:
    """Files truncated at various positions."""
    for image_format in ("PNG", "JPEG", "WEBP"):
        whole = png(96, 96, image_format=image_format)
        for percent in (1, 3, 10, 20, 30, 45, 60, 75, 85, 90):
            yield f"{image_format} cut at {percent} %", whole[: len(whole) * percent // 100]
    yield "large JPEG cut at 50 %", large()


def large() -> bytes:
    """First half of a progressive JPEG of 15 million pixels, all scans of which decoders buffer."""
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(np.tile(noise, (19, 20, 1))).save(out, "JPEG", quality=20, progressive=True)
    return out.getvalue()[: out.tell() // 2]


def wrong_kinds() -> Iterator[tuple[str, bytes]]:
    """Other file formats, and files with the magic bytes of another format."""
    for image_format in (
        "GIF",
        "BMP",
        "TIFF",
        "ICO",
        "PPM",
        "SGI",
        "TGA",
        "PCX",
        "EPS",
        "PDF",
        "JPEG2000",
        "DDS",
        "MSP",
        "XBM",
        "SPIDER",
        "AVIF",
    ):
        image = Image.open(io.BytesIO(png(32, 32)))
        out = io.BytesIO()
        image.convert({"MSP": "1", "XBM": "1", "SPIDER": "F"}.get(image_format, "RGB")).save(
            out, image_format
        )
        yield image_format, out.getvalue()
    yield "SVG", b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
    yield (
        "XML bomb",
        (
            b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaa"><!ENTITY b'
            b' "&a;&a;&a;&a;&a;&a;">]><svg>&b;</svg>'
        ),
    )
    yield "HTML", b"<!doctype html><script>alert(document.cookie)</script>"
    yield "zip", archive()
    yield "ELF", b"\x7fELF" + bytes(500)
    yield "Windows program", b"MZ" + bytes(500)
    yield "shell script", b"#!/bin/sh\nrm -rf /\n"
    yield "pickle", pickle.dumps({"cos": ["system"]})
    yield (
        "ImageMagick script",
        b"push graphic-context\nimage over 0,0 0,0 'https://example.org/|id'\npop graphic-context",
    )
    yield "PostScript", b"%!PS\n(/etc/passwd) (r) file"
    yield "HEIC", b"\0\0\0\x18ftypheic" + bytes(500)
    yield "gzip", b"\x1f\x8b\x08" + bytes(500)
    yield "only a PNG's first bytes", MAGIC
    yield "only a JPEG's first bytes", b"\xff\xd8\xff\xe0"
    yield "only a WebP's first bytes", b"RIFF\x10\0\0\0WEBP"
    for name, head in (
        ("PNG", MAGIC),
        ("JPEG", b"\xff\xd8\xff\xe0\0\x10JFIF\0"),
        ("WebP", b"RIFF\xff\0\0\0WEBPVP8 "),
    ):
        yield f"{name} and then a page", head + b"<script>alert(1)</script>" * 20
        yield f"{name} and then a program", head + b"<?php system($_GET[0]); ?>" * 20
        yield (
            f"{name} and then another picture",
            head + png(image_format="JPEG" if name == "PNG" else "PNG"),
        )
        yield f"{name} after a space", b" " + png(image_format=name)


def bombs() -> Iterator[tuple[str, bytes]]:
    """Decompression bombs."""
    for width, height in (
        (50_000, 50_000),
        (2**31 - 1, 1),
        (1, 2**31 - 1),
        (65_535, 65_535),
        (100_000, 1_000),
        (8_001, 8_000),
        (0, 0),
        (0, 5),
        (5, 0),
    ):
        yield f"PNG of {width}x{height}", png_of(width, height)
    for width, height in ((65_500, 65_500), (65_500, 1_000), (1_000, 65_500), (8_001, 8_000)):
        yield f"JPEG of {width}x{height}", jpeg_of(width, height)
    for width, height in ((16_384, 16_384), (2**24, 2**8), (16_384, 4_000)):
        yield f"WebP of {width}x{height}", webp_of(width, height)
    yield "PNG of zeros, below the limit on pixels", zeros(7_900, 7_900)
    yield "PNG of zeros, above it", zeros(8_100, 8_100)
    for kind in (b"zTXt", b"iTXt"):
        yield f"{kind.decode()} bomb", text_bomb(kind)


def damaged() -> Iterator[tuple[str, bytes]]:
    """Pictures with damage in critical places."""
    pixels = b"\0" * 8 * 25
    for depth, colour, interlace in (
        (3, 2, 0),
        (8, 5, 0),
        (16, 3, 0),
        (1, 2, 0),
        (0, 0, 0),
        (255, 255, 0),
    ):
        yield (
            f"PNG of depth {depth}, colour {colour}, interlace {interlace}",
            png_of(8, 8, pixels, depth, colour, interlace),
        )
    yield (
        "PNG without pixels",
        MAGIC + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)) + chunk(b"IEND", b""),
    )
    yield (
        "PNG of garbage",
        MAGIC
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", b"garbage")
        + chunk(b"IEND", b""),
    )
    yield (
        "PNG without a header",
        MAGIC + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b""),
    )
    yield (
        "PNG with a chunk of 2 GB",
        MAGIC
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
        + struct.pack(">I", 2**31 - 1)
        + b"IDATx",
    )
    yield "PNG with a wrong checksum", png(32, 32)[:29] + b"\0\0\0\0" + png(32, 32)[33:]
    frames = [Image.fromarray(np.full((16, 16, 3), value, np.uint8)) for value in (0, 99, 255)]
    for image_format in ("PNG", "WEBP"):
        out = io.BytesIO()
        frames[0].save(out, image_format, save_all=True, append_images=frames[1:])
        yield f"animated {image_format}", out.getvalue()
    noise = random.Random(0)
    for number in range(12):
        yield (
            f"noise {number}",
            (b"", MAGIC, b"\xff\xd8\xff", b"RIFF")[number % 4] + noise.randbytes(1 + 400 * number),
        )
    yield "nothing", b""


def refused() -> dict[str, bytes]:
    """All files that must be rejected, by description."""
    return {
        name: data for family in (truncated, wrong_kinds, bombs, damaged) for name, data in family()
    }


def disarmed() -> dict[str, bytes]:
    """Valid pictures with metadata or appended data, which must be removed."""
    told = PngImagePlugin.PngInfo()
    told.add_text("Comment", "PAYLOAD " * 100, zip=True)
    exif = Image.Exif()
    exif[0x010E] = "PAYLOAD"
    exif[0x8825] = {1: "N", 2: (52.0, 31.0, 0.0), 29: "PAYLOAD"}
    # a directory that contains itself
    deep = b"II*\0\x08\0\0\0" + b"\x01\0\x69\x87\x04\0\x01\0\0\0\x08\0\0\0" + b"\x08\0\0\0"
    return {
        "PNG and a zip": png() + archive() + b"PAYLOAD",
        "JPEG and a page": png(image_format="JPEG") + b"<script>PAYLOAD</script>",
        "PNG with texts": saved("PNG", pnginfo=told),
        "JPEG with EXIF, profile and comment": saved(
            "JPEG", exif=exif, icc_profile=b"PAYLOAD" * 1000, comment=b"PAYLOAD"
        ),
        "JPEG with EXIF without end": saved("JPEG", exif=b"Exif\0\0" + deep + b"PAYLOAD"),
        "WebP with EXIF and XMP": saved("WEBP", exif=exif, xmp=b"<x:xmpmeta>PAYLOAD</x:xmpmeta>"),
    }
