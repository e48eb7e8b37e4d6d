"""Notebook display of pictures: one PNG, or HTML with a caption."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.imaging.images import encode_png

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")

GAP = 4
"""White pixels between two pictures."""


def png_row(pictures_BCHW: Tensor) -> bytes:
    """Pictures (B, 3, H, W) in [-1, 1] side by side as one PNG."""
    x_BCHW = pictures_BCHW.detach().float().cpu().clamp(-1, 1)
    padded_BCHW = torch.nn.functional.pad(x_BCHW, (0, GAP), value=1.0)
    return encode_png(torch.cat(list(padded_BCHW), dim=-1)[..., :-GAP])


def figure(pictures_BCHW: Tensor, caption: str) -> str:
    """The same row as HTML, with a plain-text caption below."""
    data = base64.b64encode(png_row(pictures_BCHW)).decode()
    text = html.escape(caption)
    return (
        f'<figure><img alt="{text}" src="data:image/png;base64,{data}">'
        f"<figcaption>{text}</figcaption></figure>"
    )
