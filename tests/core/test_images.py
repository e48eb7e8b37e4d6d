"""Reading pictures of all kinds, rejecting other files, and writing pictures."""

import contextlib
import io
import random
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from aps_core.errors import ImageRejected, ImageTooLarge
from aps_core.imaging import images
from aps_core.imaging.resampling import resize


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def gradient(mode="RGB", size=(12, 8)):
    y, x = np.mgrid[: size[1], : size[0]]
    return Image.fromarray(np.stack([x * 20, y * 30, 255 - x * 20], -1).astype(np.uint8)).convert(
        mode
    )


def png_header(width, height):
    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 64))


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "RGBA", "LA"])
def test_modes_become_rgb_in_range(mode):
    x = images.to_tensor(images.open_image(encoded(gradient(mode))))
    assert x.shape == (3, 8, 12)
    assert x.dtype == torch.float32
    assert -1 <= x.min() < x.max() <= 1


def test_levels_survive_the_round_trip():
    levels = Image.fromarray(
        np.arange(256, dtype=np.uint8).reshape(16, 16).repeat(3).reshape(16, 16, 3)
    )
    x = images.to_tensor(images.open_image(encoded(levels)))
    assert (float(x.min()), float(x.max())) == (-1, 1)
    assert np.array_equal(np.asarray(images.to_pil(x)), np.asarray(levels))
    assert np.array_equal(
        np.asarray(images.to_pil(x * 3))[0, 0], [0, 0, 0]
    )  # outside values are clipped


def test_sixteen_bit_grey_keeps_its_precision():
    fine = Image.fromarray((np.arange(64, dtype=np.uint16) * 3 + 30000).reshape(8, 8))
    x = images.to_tensor(images.open_image(encoded(fine)))
    assert len(x[0].unique()) == 64
    assert x[0, 0, 0].item() == pytest.approx(30000 / 32767.5 - 1, abs=1e-6)


def test_orientation_is_applied_and_metadata_dropped():
    exif = Image.Exif()
    exif[0x0112], exif[0x8825] = 6, {1: "N"}  # rotated by 90 degrees; a GPS position
    picture = images.open_image(encoded(gradient(), "JPEG", exif=exif))
    assert (picture.width, picture.height) == (8, 12)
    assert not picture.image.getexif()
    assert not picture.image.info


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_undone(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(gradient(), exif=exif)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert np.array_equal(np.asarray(images.open_image(data).image), np.asarray(expected))


def test_the_first_picture_of_an_mpo_file_is_read():
    behind = Image.new("RGB", (12, 8))
    x = images.to_tensor(
        images.open_image(encoded(gradient(), "MPO", save_all=True, append_images=[behind]))
    )
    assert x.std() > 0.2


def test_alpha_is_a_mask():
    transparent = gradient("RGBA")
    transparent.putalpha(Image.fromarray((np.mgrid[:8, :12][1] < 6).astype(np.uint8) * 255))
    picture = images.open_image(encoded(transparent))
    assert picture.has_alpha
    assert images.mask_to_tensor(picture).sum().item() == 48
    for mode in ("P", "L", "1", "RGB"):
        drawn = gradient(mode)
        transparent_colour = encoded(
            drawn, transparency=0 if mode == "1" else drawn.getpixel((0, 0))
        )
        assert images.open_image(transparent_colour).has_alpha, mode


@pytest.mark.parametrize(("mode", "plain"), [("RGBA", "RGB"), ("LA", "L")])
def test_a_fully_opaque_alpha_channel_is_ignored(mode, plain):
    drawn = Image.fromarray((np.mgrid[:8, :12][1] < 6).astype(np.uint8) * 255)
    picture = images.open_image(encoded(drawn.convert(mode)))  # as a browser canvas writes a mask
    assert (picture.image.mode, picture.has_alpha) == (plain, False)
    assert images.mask_to_tensor(picture).sum().item() == 48, "by its brightness"
    almost = drawn.convert(mode)
    almost.putalpha(
        Image.fromarray(np.where(np.indices((8, 12)).sum(0) == 0, 254, 255).astype(np.uint8))
    )
    assert images.open_image(encoded(almost)).has_alpha


def test_mask_pictures_are_thresholded():
    mask = images.mask_to_tensor(images.open_image(encoded(gradient("L"))))
    assert set(mask.unique().tolist()) <= {0.0, 1.0}


def test_cmyk_becomes_rgb():
    cmyk = Image.new("CMYK", (6, 4), (0, 255, 255, 0))
    x = images.to_tensor(images.open_image(encoded(cmyk, "JPEG")))
    assert x.shape == (3, 4, 6)
    assert x[0].mean() > 0.8 > x[1].mean()  # magenta and yellow make red


@pytest.mark.parametrize("size", [(1, 1), (3, 1), (17, 31)])
def test_any_size(size):
    assert images.to_tensor(images.open_image(encoded(gradient(size=size)))).shape == (
        3,
        size[1],
        size[0],
    )


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", "image_empty", "empty"),
        (
            b"hello, I am no picture",
            "not_an_image",
            "not a picture in one of the formats PNG, JPEG, WEBP",
        ),
        (
            b"<svg xmlns='http://www.w3.org/2000/svg' width='8' height='8'/>",
            "unsupported_image_format",
            "a SVG file, not a picture in one",
        ),
        (encoded(gradient("P"), "GIF"), "unsupported_image_format", "a GIF file"),
        (
            encoded(gradient("P"), "GIF", save_all=True, append_images=[gradient("L")]),
            "unsupported_image_format",
            "a GIF file",
        ),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "unsupported_image_format", "a HEIC"),
        (encoded(gradient(size=(200, 200)))[:-300], "image_truncated", "damaged or incomplete"),
        (
            encoded(gradient(size=(200, 200)), "JPEG")[:-400],
            "image_truncated",
            "damaged or incomplete",
        ),
        (
            encoded(
                gradient(),
                "WEBP",
                save_all=True,
                append_images=[gradient("L").convert("RGB")],
                duration=100,
            ),
            "image_animated",
            "animated",
        ),
        (
            encoded(gradient(), "PNG", save_all=True, append_images=[gradient("L").convert("RGB")]),
            "image_animated",
            "animated",
        ),
    ],
)
def test_files_that_are_not_one_complete_picture_are_rejected(data, code, words):
    with pytest.raises(ImageRejected, match=words) as caught:
        images.open_image(data)
    assert caught.value.code == code
    assert ImageRejected.code == "image_rejected"


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's warnings about damaged metadata
def test_damaged_files_are_read_or_rejected_without_other_errors():
    exif = Image.Exif()
    exif[0x0112], exif[0x8825] = 6, {1: "N"}
    wholes = [encoded(gradient(size=(24, 16)), kind, exif=exif) for kind in ("PNG", "JPEG", "WEBP")]
    chance = random.Random(0)
    for i in range(1500):
        data = bytearray(wholes[i % 3])
        for _ in range(chance.choice((1, 2, 8))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with contextlib.suppress(ImageRejected):
            images.open_image(bytes(data))


def test_unwritable_metadata_is_harmless():
    """EXIF with an orientation and a tag whose value does not match its type."""
    tiff = (
        b"MM\0*\0\0\0\x08"
        + b"\0\x02"
        + struct.pack(">HHIHH", 0x0112, 3, 1, 6, 0)
        + struct.pack(">HHI4s", 0x0100, 2, 4, b"abc\0")
        + b"\0" * 4
    )
    picture = images.open_image(encoded(gradient(), "JPEG", exif=b"Exif\0\0" + tiff))
    assert (picture.width, picture.height) == (8, 12)


def test_size_is_checked_before_pixels_are_decoded():
    for side in (50_000, 9_000):
        with pytest.raises(ImageTooLarge, match="pixels"):
            images.open_image(png_header(side, side))
    with pytest.raises(ImageTooLarge, match="12x8 pixels; at most 50"):
        images.open_image(encoded(gradient()), max_pixels=50)


def test_digest_follows_pixels_only():
    one = images.open_image(encoded(gradient()))
    assert one.digest() == images.open_image(encoded(gradient(), compress_level=1)).digest()
    assert one.digest() != images.open_image(encoded(gradient("L"))).digest()


def test_resize_is_antialiased():
    stripes = torch.ones(3, 64, 64)
    stripes[..., ::2] = -1
    assert resize(stripes, (16, 16))[..., 4:-4].abs().max() < 0.1


@pytest.mark.parametrize("quality", [15, 100])
def test_a_stored_png_tells_the_steps_of_its_jpeg(quality):
    steps = images.open_image(encoded(gradient(), "JPEG", quality=quality)).jpeg_steps
    text = PngInfo()
    text.add_text(images.STEPS, ",".join(map(str, steps)))
    data = encoded(gradient(), "PNG", pnginfo=text)
    assert images.open_stored(data).jpeg_steps == steps
    assert images.open_stored(data).jpeg_quality == quality
    assert images.open_image(data).jpeg_steps is None  # an upload may tell anything


@pytest.mark.parametrize("told", ["no", "1", ",".join(["0"] * 64), ",".join(["9"] * 65)])
def test_text_that_tells_no_steps_is_ignored(told):
    text = PngInfo()
    text.add_text(images.STEPS, told)
    assert images.open_stored(encoded(gradient(), "PNG", pnginfo=text)).jpeg_steps is None


def test_the_steps_of_a_jpeg_on_its_side_are_turned():
    steps = images.open_image(encoded(gradient(), "JPEG", quality=50)).jpeg_steps
    assert steps[:3] == (16, 11, 10)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    turned = images.open_image(encoded(gradient(), "JPEG", quality=50, exif=exif)).jpeg_steps
    assert turned[:3] == (16, 12, 14)
    exif[ExifTags.Base.Orientation] = 3
    assert images.open_image(encoded(gradient(), "JPEG", quality=50, exif=exif)).jpeg_steps == steps


def test_a_jpeg_tells_its_quality_and_other_formats_none():
    found = [images.open_image(encoded(gradient(), kind)).jpeg_quality for kind in ("PNG", "WEBP")]
    assert found == [None, None]
    assert images.open_image(encoded(gradient(), "JPEG", quality=33)).jpeg_quality == 33


def test_jpeg_preview():
    x = torch.zeros(3, 16, 24)
    assert Image.open(io.BytesIO(images.encode_jpeg(x))).size == (24, 16)
