"""Reading pictures of every kind, refusing what is none, and writing them."""

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from aps_core import images
from aps_core.errors import ImageRejected, ImageTooLarge


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def gradient(mode="RGB", size=(12, 8)):
    y, x = np.mgrid[: size[1], : size[0]]
    return Image.fromarray(np.stack([x * 20, y * 30, 255 - x * 20], -1).astype(np.uint8)).convert(mode)


def png_header(width, height):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 64))


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "RGBA", "LA"])
def test_modes_become_rgb_in_range(mode):
    x = images.to_tensor(images.open_image(encoded(gradient(mode))))
    assert x.shape == (3, 8, 12)
    assert x.dtype == torch.float32
    assert -1 <= x.min() < x.max() <= 1


def test_levels_survive_the_round_trip():
    levels = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16).repeat(3).reshape(16, 16, 3))
    x = images.to_tensor(images.open_image(encoded(levels)))
    assert (x.min(), x.max()) == (-1, 1)
    assert np.array_equal(np.asarray(images.to_pil(x)), np.asarray(levels))
    assert np.array_equal(np.asarray(images.to_pil(x * 3))[0, 0], [0, 0, 0])  # outside values are clipped


def test_sixteen_bit_grey_keeps_its_precision():
    fine = Image.fromarray((np.arange(64, dtype=np.uint16) * 3 + 30000).reshape(8, 8))
    x = images.to_tensor(images.open_image(encoded(fine)))
    assert len(x[0].unique()) == 64
    assert x[0, 0, 0].item() == pytest.approx(30000 / 32767.5 - 1, abs=1e-6)


def test_orientation_is_applied_and_metadata_dropped():
    exif = Image.Exif()
    exif[0x0112], exif[0x8825] = 6, {1: "N"}  # rotated by a quarter; a place
    picture = images.open_image(encoded(gradient(), "JPEG", exif=exif))
    assert (picture.width, picture.height) == (8, 12)
    assert not picture.image.getexif()
    assert not picture.image.info


def test_alpha_is_a_mask():
    transparent = gradient("RGBA")
    transparent.putalpha(Image.fromarray((np.mgrid[:8, :12][1] < 6).astype(np.uint8) * 255))
    picture = images.open_image(encoded(transparent))
    assert picture.has_alpha
    assert images.mask_to_tensor(picture).sum().item() == 48
    palette = encoded(gradient("P"), transparency=0)
    assert images.open_image(palette).has_alpha


def test_mask_pictures_are_black_and_white():
    mask = images.mask_to_tensor(images.open_image(encoded(gradient("L"))))
    assert set(mask.unique().tolist()) <= {0.0, 1.0}


def test_cmyk_becomes_rgb():
    cmyk = Image.new("CMYK", (6, 4), (0, 255, 255, 0))
    x = images.to_tensor(images.open_image(encoded(cmyk, "JPEG")))
    assert x.shape == (3, 4, 6)
    assert x[0].mean() > 0.8 > x[1].mean()  # magenta and yellow make red


@pytest.mark.parametrize("size", [(1, 1), (3, 1), (17, 31)])
def test_any_size(size):
    assert images.to_tensor(images.open_image(encoded(gradient(size=size)))).shape == (3, size[1], size[0])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"hello, I am no picture", "not a picture in one of the formats PNG, JPEG, WEBP"),
        (b"<svg xmlns='http://www.w3.org/2000/svg' width='8' height='8'/>", "not a picture"),
        (encoded(gradient("P"), "GIF"), "not a picture"),
        (encoded(gradient(size=(200, 200)))[:-300], "damaged or incomplete"),
        (encoded(gradient(size=(200, 200)), "JPEG")[:-400], "damaged or incomplete"),
        (encoded(gradient(), "WEBP", save_all=True, append_images=[gradient("L").convert("RGB")], duration=100), "animated"),
    ],
)
def test_what_is_no_single_whole_picture_is_refused(data, words):
    with pytest.raises(ImageRejected, match=words):
        images.open_image(data)


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


def test_provenance_travels_in_the_png():
    sidecar = {"notice": "not evidence", "spec": {"type": "restore"}}
    image = Image.open(io.BytesIO(images.encode_png(torch.zeros(3, 4, 4), images.provenance(sidecar))))
    assert image.text["Comment"] == "not evidence"
    assert image.text["DigitalSourceType"].endswith("compositeWithTrainedAlgorithmicMedia")
    assert '"restore"' in image.text["aps"]


def test_resize_is_antialiased():
    stripes = torch.ones(3, 64, 64)
    stripes[..., ::2] = -1
    assert images.resize(stripes, (16, 16))[..., 4:-4].abs().max() < 0.1


def test_jpeg_preview():
    x = torch.zeros(3, 16, 24)
    assert Image.open(io.BytesIO(images.encode_jpeg(x))).size == (24, 16)
