"""Pictures in and out: safe reading, tensors in [-1, 1], resizing, encoding. Needs no torch until tensors are made.

Accepted: PNG, JPEG and WebP of one frame. EXIF orientation is applied, then all metadata is dropped; CMYK,
palettes and other modes become RGB; alpha is kept as a mask candidate; 16-bit grey keeps its precision
(16-bit colour is read as 8-bit, which is what Pillow gives).
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps, PngImagePlugin

from aps_core._lazy import lazy_import
from aps_core.errors import ImageRejected, ImageTooLarge

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")

FORMATS = ("PNG", "JPEG", "WEBP")
MAX_PIXELS = 64_000_000
"""Largest upload that is read, in pixels; a phone's camera makes 12 to 50 million."""
_KEPT_MODES = ("RGB", "RGBA", "L", "LA", "I;16")
IPTC_AI_SOURCE = "http://cv.iptc.org/newscodes/digitalsourcetype/compositeWithTrainedAlgorithmicMedia"
"""IPTC digital source type of a picture edited by a trained model."""


@dataclass(frozen=True)
class Picture:
    """Plain upright pixels without metadata: mode RGB, RGBA, L, LA or I;16."""

    image: Image.Image

    @property
    def width(self) -> int:
        """Pixels across."""
        return self.image.width

    @property
    def height(self) -> int:
        """Pixels down."""
        return self.image.height

    @property
    def has_alpha(self) -> bool:
        """Whether the picture brings its own mask."""
        return self.image.mode in ("RGBA", "LA")

    def digest(self) -> str:
        """SHA-256 over size, mode and pixels."""
        return hashlib.sha256(f"{self.image.size} {self.image.mode} ".encode() + self.image.tobytes()).hexdigest()


def open_image(data: bytes, max_pixels: int = MAX_PIXELS) -> Picture:
    """Reads an encoded picture. The size is checked before any pixel is decoded.

    Raises:
        ImageRejected: it is empty, no picture of an accepted format, animated, truncated or damaged.
        ImageTooLarge: it has more than ``max_pixels`` pixels.
    """
    if not data:
        raise ImageRejected("The picture is empty (0 bytes).")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit comes right below
        try:
            image = Image.open(io.BytesIO(data), formats=FORMATS)
        except Image.DecompressionBombError as error:
            raise ImageTooLarge(f"The picture has more than the {max_pixels:,} pixels that are read; send a smaller one.") from error
        except (OSError, ValueError, SyntaxError) as error:
            raise ImageRejected(f"This is not a picture in one of the formats {', '.join(FORMATS)}.") from error
    if image.width * image.height > max_pixels:
        raise ImageTooLarge(f"The picture is {image.width}x{image.height} pixels; at most {max_pixels:,} pixels are read. Send a smaller one.")
    if getattr(image, "n_frames", 1) > 1:
        raise ImageRejected(f"The {image.format} picture is animated ({image.n_frames} frames); send a single frame.")  # type: ignore[attr-defined]
    try:
        image.load()
        return Picture(_plain(ImageOps.exif_transpose(image)))
    except (OSError, ValueError, SyntaxError, MemoryError) as error:
        raise ImageRejected(f"The {image.format} file is damaged or incomplete: {error}") from error


def _plain(image: Image.Image) -> Image.Image:
    """Only pixels: no metadata, no palette, a mode we keep."""
    if image.mode == "P" or (image.mode == "RGB" and "transparency" in image.info):
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    elif image.mode not in _KEPT_MODES:
        image = image.convert("L" if image.mode == "1" else "RGB")
    bare = Image.new(image.mode, image.size)
    bare.paste(image)
    return bare


def to_tensor(picture: Picture) -> Tensor:
    """RGB (3, H, W), float32 in [-1, 1]; grey is repeated, alpha is left out."""
    image = picture.image
    if image.mode == "I;16":
        grey = np.asarray(image).astype(np.float32) / 32767.5 - 1
        return torch.from_numpy(grey).expand(3, -1, -1).contiguous()
    rgb = np.array(image.convert("RGB"), dtype=np.float32)
    return torch.from_numpy(rgb).permute(2, 0, 1).contiguous().div_(127.5).sub_(1)


def mask_to_tensor(picture: Picture) -> Tensor:
    """(H, W) of 0 and 1, 1 = known: the alpha channel where there is one, else white against black."""
    image = picture.image
    band = image.getchannel("A") if picture.has_alpha else image.convert("L") if image.mode != "I;16" else image.point(lambda v: v / 256).convert("L")
    return torch.from_numpy(np.array(band, dtype=np.float32)).ge(127.5).float()


def resize(x_CHW: Tensor, size: tuple[int, int]) -> Tensor:
    """Antialiased bicubic resize to (height, width)."""
    return torch.nn.functional.interpolate(x_CHW[None], size, mode="bicubic", antialias=True)[0]


def to_pil(x_CHW: Tensor) -> Image.Image:
    """(3, H, W) in [-1, 1] to an 8-bit RGB picture; values outside are clipped."""
    x = x_CHW.detach().float().add(1).mul_(127.5).round_().clamp_(0, 255).to(torch.uint8)
    return Image.fromarray(x.permute(1, 2, 0).contiguous().cpu().numpy())


def encode_jpeg(x_CHW: Tensor, quality: int = 80) -> bytes:
    """JPEG bytes of (3, H, W) in [-1, 1]; about a millisecond at 512x512."""
    buffer = io.BytesIO()
    to_pil(x_CHW).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def encode_png(x_CHW: Tensor, text: Mapping[str, str]) -> bytes:
    """PNG bytes of (3, H, W) in [-1, 1] with ``text`` as text chunks."""
    info = PngImagePlugin.PngInfo()
    for key, value in text.items():
        info.add_itxt(key, value)
    buffer = io.BytesIO()
    to_pil(x_CHW).save(buffer, "PNG", pnginfo=info, compress_level=3)
    return buffer.getvalue()


def provenance(sidecar: Mapping[str, Any]) -> dict[str, str]:
    """Text chunks that say how a picture came to be."""
    return {"Software": "aps", "Comment": str(sidecar["notice"]), "DigitalSourceType": IPTC_AI_SOURCE, "aps": json.dumps(sidecar["spec"])}
