"""JPEG compression, differentiable by straight-through rounding."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.imaging.resampling import edge_pad
from aps_core.operators.base import Bound, OperatorSpec, Shape, Support
from aps_core.operators.denoise import Denoise

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")

# Quantisation tables of the JPEG standard, annex K, rows of the 8x8 block.
LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *(((99,) * 8,) * 4),
)
# JFIF: Y, Cb, Cr from R, G, B in 0..255, chroma centred on 0.
TO_YCC = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))


class JPEG(OperatorSpec):
    """The picture was compressed as a JPEG of known quality."""

    type: Literal["jpeg"] = "jpeg"
    quality: int = Field(
        20,
        ge=1,
        le=95,
        description="JPEG quality on the encoders' usual scale (without chroma subsampling).",
    )

    def words(self) -> str:
        return f"JPEG compression of quality {self.quality}"

    @property
    def rounding(self) -> float:
        """Uniform rounding error of the lowest frequencies, where most of a picture's contrast is:
        a step over the square root of 12. Compression hides the noise, but not this error, and
        without it the inverse of a blur before the compression amplifies it.
        """
        step = (LUMINANCE[1][1] * self._scale + 50) // 100
        return float(max(1, step) / math.sqrt(12) / 127.5)

    def without_rounding(self) -> OperatorSpec:
        """The picture itself: what is left of a JPEG round trip."""
        return Denoise()

    @property
    def _scale(self) -> float:
        """Percentage by which the standard's tables are multiplied."""
        return 5000 / self.quality if self.quality < 50 else 200 - 2 * self.quality

    @property
    def support(self) -> Support:
        """Blocks of 8x8 pixels."""
        return Support(0, 8)

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        tables = torch.tensor(
            (LUMINANCE, CHROMINANCE, CHROMINANCE), dtype=torch.float32, device=device
        )
        tables = ((tables * self._scale + 50) / 100).floor().clamp(1, 255)
        n = torch.arange(8, dtype=torch.float32, device=device)
        dct = torch.cos((2 * n[None] + 1) * n[:, None] * math.pi / 16) / 2
        dct[0] /= math.sqrt(2)
        colour = torch.tensor(TO_YCC)
        constants = (tables, dct, colour.to(device), torch.linalg.inv(colour).to(device))
        return Bound(lambda x: _compress(x, *(t.to(x.dtype) for t in constants)))


def _compress(
    x_BCHW: Tensor, tables_C88: Tensor, dct: Tensor, to_ycc: Tensor, to_rgb: Tensor
) -> Tensor:
    """JPEG round trip on 8x8 blocks of the edge-padded picture: colour transform, DCT,
    quantisation, and back.
    """
    _, _, height, width = x_BCHW.shape
    # subtracting 128 from every channel centres Y and leaves chroma unchanged
    ycc = torch.einsum("ij,bjhw->bihw", to_ycc, x_BCHW.add(1).mul(127.5).clamp(0, 255) - 128)
    padded = edge_pad(ycc, -height % 8, -width % 8)
    batch, channels, ph, pw = padded.shape
    blocks = padded.view(batch, channels, ph // 8, 8, pw // 8, 8).transpose(3, 4)
    table = tables_C88[None, :, None, None]
    coefficients = dct @ blocks @ dct.T / table
    coefficients = (coefficients + (coefficients.round() - coefficients).detach()) * table
    restored = (
        (dct.T @ coefficients @ dct)
        .transpose(3, 4)
        .reshape(batch, channels, ph, pw)[..., :height, :width]
    )
    rgb = torch.einsum("ij,bjhw->bihw", to_rgb, restored) + 128
    return rgb.clamp(0, 255).div(127.5).sub(1)
