"""Picture input and output: safe reading, tensors in [-1, 1], resizing, encoding. Only tensors need
torch.

Accepted formats are PNG, JPEG and WebP with one frame. From the several pictures that phones store
in one JPEG, the first is used. EXIF orientation is applied; then all metadata (colour profile,
location, camera) is removed; only the quantisation steps of a JPEG are kept. CMYK, palettes and
other modes are converted to RGB without colour management. Alpha, including a transparent colour,
is kept as a mask candidate. A fully opaque alpha channel is ignored, because many programs add one
to every picture. 16-bit grey keeps its precision; 16-bit colour is read as 8-bit by Pillow.
"""

from __future__ import annotations

import hashlib
import io
import re
import struct
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import ExifTags, Image

from aps_core._lazy import lazy_import
from aps_core.errors import ImageRejected, ImageTooLarge
from aps_core.imaging.jpeg_tables import quality_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")

FORMATS = ("PNG", "JPEG", "WEBP")
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in brightness (ITU-R BT.601), as in JPEG and Pillow."""
_OTHERS = {
    b"GIF8": "GIF",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"<svg": "SVG",
    b"<?xml": "SVG",
    b"%PDF": "PDF",
}
"""First bytes of other common formats. They are named in the error message, never opened."""
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transposition that corrects each EXIF orientation."""
_ON_ITS_SIDE = {_UPRIGHT[orientation] for orientation in (5, 6, 7, 8)}
MAX_PIXELS = 64_000_000
"""Largest accepted upload in pixels; phone cameras produce 12 to 50 million."""
BOMB_PIXELS, BOMB_PIXELS_PER_BYTE = 16_000_000, 200
"""A picture with more pixels than the first number, and more pixels per byte of file than the
second, is rejected as a decompression bomb.
"""
MaskCoverage = Literal["all", "some", "none"]
"""Share of a picture that its mask marks as known."""
STEPS = "jpeg-steps"
"""Name of the text chunk of a stored PNG with the quantisation steps of the original JPEG."""
_KEPT_MODES = ("RGB", "RGBA", "L", "LA", "I;16")


@dataclass(frozen=True)
class Picture:
    """Plain upright pixels without metadata: mode RGB, RGBA, L, LA or I;16. For a JPEG also the
    quantisation steps.
    """

    image: Image.Image
    jpeg_steps: tuple[int, ...] | None = None
    """Quantisation steps of the 64 luminance coefficients, row by row of an upright block, in
    levels of 8 bits; None for other formats.
    """

    @property
    def jpeg_quality(self) -> int | None:
        """Quality 1 to 100 with the closest quantisation steps; None for other formats."""
        return None if self.jpeg_steps is None else quality_of(self.jpeg_steps)

    @property
    def width(self) -> int:
        """Width in pixels."""
        return self.image.width

    @property
    def height(self) -> int:
        """Height in pixels."""
        return self.image.height

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.image.size

    @property
    def has_alpha(self) -> bool:
        """Whether the picture has an alpha channel."""
        return self.image.mode in ("RGBA", "LA")

    @property
    def is_transparent(self) -> bool:
        """Whether a pixel is not opaque; reads all of them."""
        return self.has_alpha and self.image.getchannel("A").getextrema() != (255, 255)

    def rgb(self) -> Image.Image:
        """8-bit RGB image without alpha; 16-bit values keep their upper 8 bits."""
        image = self.image
        if image.mode == "I;16":
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        return image.convert("RGB")

    def digest(self) -> str:
        """SHA-256 over size, mode and pixels."""
        return hashlib.sha256(
            f"{self.image.size} {self.image.mode} ".encode() + self.image.tobytes()
        ).hexdigest()


def open_image(data: bytes, max_pixels: int = MAX_PIXELS) -> Picture:
    """Reads an encoded picture. The size is checked before any pixel is decoded.

    Raises:
        ImageRejected: with code ``image_empty``, ``not_an_image``, ``unsupported_image_format``,
            ``image_animated`` or ``image_truncated`` (incomplete or damaged).
        ImageTooLarge: it has more than ``max_pixels`` pixels, or decoding it needs too much memory.
    """
    if not data:
        raise ImageRejected("The picture is empty (0 bytes).", "image_empty")
    with warnings.catch_warnings():
        # our own limit is checked below
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            image = Image.open(io.BytesIO(data), formats=FORMATS)
        except Image.DecompressionBombError as error:
            raise ImageTooLarge(
                f"The picture has more than the {max_pixels:,} pixels that are read; send a smaller"
                " one."
            ) from error
        except (OSError, ValueError, SyntaxError) as error:
            raise _unreadable(data) from error
    if image.width * image.height > max_pixels:
        raise ImageTooLarge(
            f"The picture is {image.width}x{image.height} pixels; at most {max_pixels:,} pixels are"
            " read. Send a smaller one."
        )
    if image.width * image.height > max(BOMB_PIXELS, BOMB_PIXELS_PER_BYTE * len(data)):
        raise ImageTooLarge(
            f"The picture claims {image.width}x{image.height} pixels in {len(data)} bytes, too many"
            " to be a photograph; send a smaller one."
        )
    frames = getattr(image, "n_frames", 1)
    if (
        frames > 1 and image.format != "MPO"
    ):  # a JPEG with further pictures (depth, gain map) after the photograph
        raise ImageRejected(
            f"The {image.format} picture is animated ({frames} frames); send a single frame.",
            "image_animated",
        )
    try:
        image.load()
        return upright(image)
    except MemoryError as error:
        raise ImageTooLarge(
            f"Decoding {image.width}x{image.height} pixels needs more memory than available; send a"
            " smaller picture."
        ) from error
    except (OSError, ValueError, SyntaxError, struct.error) as error:
        raise ImageRejected(
            f"The {image.format} file is damaged or incomplete: {error}", "image_truncated"
        ) from error


def open_stored(data: bytes) -> Picture:
    """Reads a PNG that the service wrote, with the quantisation steps of the original JPEG."""
    picture = open_image(data)
    with Image.open(io.BytesIO(data), formats=("PNG",)) as file:
        text = str(file.info.get(STEPS, ""))
    known = re.fullmatch(r"[1-9]\d{0,4}(,[1-9]\d{0,4}){63}", text, re.ASCII)
    return replace(picture, jpeg_steps=tuple(map(int, text.split(","))) if known else None)


def _unreadable(data: bytes) -> ImageRejected:
    """Error for unidentified ``data``: another known format, or no picture."""
    accepted = ", ".join(FORMATS)
    head = data[:64].lstrip()
    name = (
        "HEIC, AVIF or video"
        if data[4:8] == b"ftyp"
        else next((name for magic, name in _OTHERS.items() if head.startswith(magic)), None)
    )
    if name is None:
        return ImageRejected(
            f"This is not a picture in one of the formats {accepted}.", "not_an_image"
        )
    return ImageRejected(
        f"This is a {name} file, not a picture in one of the formats {accepted}; convert it first.",
        "unsupported_image_format",
    )


def upright(image: Image.Image) -> Picture:
    """Applies the EXIF orientation of a PIL image, then removes metadata and palette. The
    quantisation steps of a JPEG are kept unless PIL has changed the image.
    """
    turn = _UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    plain = _plain(image if turn is None else image.transpose(turn))
    steps = getattr(image, "quantization", {}).get(0, ())  # of JPEG files only
    if len(steps) != 64 or min(steps) < 1:
        return Picture(plain)
    if turn in _ON_ITS_SIDE:
        steps = [steps[8 * column + row] for row in range(8) for column in range(8)]
    return Picture(plain, tuple(steps))


def _plain(image: Image.Image) -> Image.Image:
    """Removes metadata and palettes, and converts to a supported mode."""
    if "transparency" in image.info and image.mode in ("1", "L", "P", "RGB"):
        image = image.convert("RGBA")
    elif image.mode not in _KEPT_MODES:
        image = image.convert("L" if image.mode == "1" else "RGB")
    if image.mode in ("RGBA", "LA") and image.getchannel("A").getextrema()[0] == 255:
        image = image.convert(image.mode[:-1])
    bare = Image.new(image.mode, image.size)
    bare.paste(image)
    return bare


def to_tensor(picture: Picture) -> Tensor:
    """RGB (3, H, W), float32 in [-1, 1]. Grey is repeated, alpha is dropped."""
    image = picture.image
    if image.mode == "I;16":
        grey = np.asarray(image).astype(np.float32) / 32767.5 - 1
        return torch.from_numpy(grey).expand(3, -1, -1).contiguous()
    rgb = np.array(image.convert("RGB"), dtype=np.float32)
    return torch.from_numpy(rgb).permute(2, 0, 1).contiguous().div_(127.5).sub_(1)


def mask_to_tensor(picture: Picture) -> Tensor:
    """Mask (H, W), 1 = known, 0 = unknown: from the alpha channel if present, else from luminance
    (white = known).
    """
    return torch.from_numpy(np.array(mask_band(picture), dtype=np.float32)).ge(127.5).float()


def mask_band(picture: Picture) -> Image.Image:
    """The 8-bit channel that contains a mask; values of 128 and more mean known."""
    image = picture.image
    return (
        image.getchannel("A")
        if picture.has_alpha
        else (
            image.convert("L")
            if image.mode != "I;16"
            else image.point(lambda v: v / 256).convert("L")
        )
    )


def mask_coverage(picture: Picture) -> MaskCoverage:
    """Coverage of a mask; reads all its pixels."""
    known = np.asarray(mask_band(picture)) >= 128
    return "some" if known.any() != known.all() else "all" if known.all() else "none"


def to_pil(x_CHW: Tensor) -> Image.Image:
    """Converts (3, H, W) in [-1, 1] to an 8-bit RGB picture; other values are clipped."""
    x = x_CHW.detach().float().add(1).mul_(127.5).round_().clamp_(0, 255).to(torch.uint8)
    return Image.fromarray(x.permute(1, 2, 0).contiguous().cpu().numpy())


def encode_jpeg(x_CHW: Tensor, quality: int = 80) -> bytes:
    """JPEG bytes of (3, H, W) in [-1, 1]; about a millisecond at 512x512."""
    buffer = io.BytesIO()
    to_pil(x_CHW).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def encode_png(x_CHW: Tensor, known_11HW: Tensor | None = None) -> bytes:
    """PNG bytes of (3, H, W) in [-1, 1], without metadata, transparent where nothing is known;
    results use :func:`aps_core.imaging.provenance.encode`.
    """
    buffer, image = io.BytesIO(), to_pil(x_CHW)
    if known_11HW is not None:
        image.putalpha(Image.fromarray(known_11HW[0, 0].mul(255).to(torch.uint8).cpu().numpy()))
    image.save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()
