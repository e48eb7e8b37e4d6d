"""Uploads are converted to plain PNGs with the same pixels and without metadata."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aps_core.errors import ImageRejected, ImageTooLarge
from aps_core.identify.diagnosis import examine, found_by
from aps_core.imaging.images import Picture, open_stored
from service.settings import Settings
from service.uploads.decoder import Decoder
from service.uploads.png import encode
from service.uploads.upload import Upload
from tests.stack import png

EXAMPLES = Path(__file__).parents[2] / "examples"


def encoded(image: Image.Image, image_format: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, image_format, **options)
    return out.getvalue()


def content(upload: Upload) -> bytes:
    upload.file.seek(0)
    return upload.file.read()


@pytest.fixture(scope="module")
def decoder() -> Iterator[Callable[..., Decoder]]:
    """Creates decoders with these settings."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Decoder:
            decoder = Decoder(Settings(**settings))
            stack.callback(decoder.close)
            return decoder

        yield make


@pytest.fixture(scope="module")
def sanitise(decoder: Callable[..., Decoder]) -> Callable[[bytes, str], Upload]:
    return decoder().sanitise


def test_sixteen_bit_grey_keeps_its_precision(sanitise) -> None:
    levels = np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)
    upload = sanitise(encoded(Image.fromarray(levels), "PNG"), "image")
    read = Image.open(io.BytesIO(content(upload)))
    assert read.mode == "I;16"
    np.testing.assert_array_equal(np.asarray(read), levels)


def test_orientation_is_applied_and_metadata_dropped(sanitise) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees to display
    exif[0x8825] = {1: "N", 2: (52.0, 31.0, 0.0)}  # GPS
    exif[0x010E] = "a secret caption"
    data = encoded(
        Image.open(io.BytesIO(png(40, 20))),
        "JPEG",
        exif=exif,
        comment=b"a secret comment",
        icc_profile=b"secret profile",
    )
    upload = sanitise(data, "image")
    assert upload.size == (20, 40)
    assert b"secret" not in content(upload)
    assert not Image.open(io.BytesIO(content(upload))).getexif()


@pytest.mark.parametrize(("kind", "quality"), [("JPEG", 15), ("PNG", None)])
def test_the_quality_of_a_jpeg_is_kept_for_jobs(sanitise, kind: str, quality: int | None) -> None:
    photo = Image.open(EXAMPLES / "photos/coffee.png").convert("RGB").crop((200, 150, 456, 406))
    options = {"quality": quality} if quality else {}
    upload = sanitise(encoded(photo, kind, **options), "image")
    stored = open_stored(content(upload))
    assert stored.jpeg_quality == quality
    assert (found_by(examine(stored), "auto") is not None) == bool(quality)


def test_alpha_is_kept_and_reported(sanitise) -> None:
    opaque = sanitise(png(16, 16, "RGBA"), "image")
    assert not opaque.picture.has_alpha, "one that is opaque everywhere says nothing"
    with Image.open(io.BytesIO(png(16, 16, "RGBA"))) as picture:
        picture.putpixel((3, 5), (0, 0, 0, 0))
        file = io.BytesIO()
        picture.save(file, "PNG")
    upload = sanitise(file.getvalue(), "image")
    assert upload.picture.has_alpha
    assert Image.open(io.BytesIO(content(upload))).mode == "RGBA"


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "I;16"])
@pytest.mark.parametrize("size", [(1, 1), (1, 70), (70, 1), (33, 20)])
def test_pixels_are_written_unchanged(mode: str, size: tuple[int, int]) -> None:
    kind = np.uint16 if mode == "I;16" else np.uint8
    noise = np.random.default_rng(0).integers(
        0, np.iinfo(kind).max + 1, (*size[::-1], len(Image.new(mode, size).getbands())), kind
    )
    image = Image.fromarray(noise.squeeze(-1) if noise.shape[-1] == 1 else noise)
    assert image.mode == mode
    read = Image.open(io.BytesIO(encode(Picture(image))))
    read.load()
    assert (read.mode, read.size, read.info) == (mode, size, {})
    np.testing.assert_array_equal(np.asarray(read), np.asarray(image))


def test_limits_hold(decoder) -> None:
    with pytest.raises(ImageTooLarge, match=r"'mask'.*64x64"):
        decoder(max_upload_pixels=1000).sanitise(png(), "mask")
    with pytest.raises(ImageRejected, match="limits on memory and time"):
        decoder(decode_bytes=10_000_000).sanitise(png(), "image")


def processes(one: Decoder) -> list[subprocess.Popen[bytes]]:
    return [slot.process for slot in one._idle if slot.process is not None]


def children(one: Decoder) -> set[str]:
    """Process ids of the children that hold a client's data."""
    tasks = [Path(f"/proc/{each.pid}/task/{each.pid}/children") for each in processes(one)]
    return {pid for task in tasks for pid in task.read_text().split()}


def test_a_process_decodes_many_pictures_and_a_crash_costs_one(decoder) -> None:
    one = decoder()
    one.start()
    started = processes(one)
    assert one.sanitise(png(), "image").size == one.sanitise(png(), "image").size
    assert set(processes(one)) == set(started)
    for process in started:
        process.kill()
        with pytest.raises(ImageRejected, match="limits on memory and time"):
            one.sanitise(png(), "image")
    assert one.sanitise(png(), "image").size == (64, 64)


def test_a_child_process_serves_one_client_until_a_bad_file(decoder, monkeypatch) -> None:
    monkeypatch.setattr("service.uploads.decoder.CONCURRENT_DECODES", 2)
    one = decoder()
    one.start()
    assert children(one) == set()
    one.sanitise(png(), "image", "ann")
    anns = children(one)
    one.sanitise(png(), "image", "ann")
    assert children(one) == anns != set()
    one.sanitise(png(), "image", "bob")
    bobs = children(one) - anns
    assert children(one) > anns, "ann keeps her process while another is idle"
    one.sanitise(png(), "image", "eve")
    eves = children(one) - bobs
    assert children(one) > bobs, "the process idle for longest changes its client"
    assert not eves & anns
    with pytest.raises(ImageRejected):
        one.sanitise(b"GIF89a", "image", "bob")
    assert children(one) == eves, "who met a bad file meets no other"
    one.sanitise(png(5000, 5000, "RGB", "JPEG"), "image", "bob").file.close()
    assert children(one) == eves, "nor is so much memory kept"
