"""JPEG compression, differentiable by straight-through rounding; and its rounding as noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.imaging.jpeg_tables import CHROMINANCE, LUMINANCE, table
from aps_core.imaging.resampling import edge_pad
from aps_core.operators.base import Bound, OperatorSpec, Shape, Support
from aps_core.operators.denoise import Denoise

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")

# JFIF: Y, Cb, Cr from R, G, B in 0..255, chroma centred on 0.
TO_YCC = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
FINEST = 95
"""Best quality whose rounding is modelled."""
CHROMA = 2.0
"""Factor of the rounding errors of chroma, because most encoders halve its resolution."""


class JPEG(OperatorSpec):
    """The picture was compressed as a JPEG of known quality."""

    type: Literal["jpeg"] = "jpeg"
    quality: int = Field(
        20,
        ge=1,
        le=FINEST,
        description="JPEG quality on the encoders' usual scale (without chroma subsampling).",
    )

    def words(self) -> str:
        return f"JPEG compression of quality {self.quality}"

    @property
    def rounding(self) -> float:
        """Uniform rounding error of the lowest frequencies, where most of a picture's contrast is:
        a step over the square root of 12.
        """
        return float(table(self.quality)[1, 1] / math.sqrt(12) / 127.5)

    def likelihood_noise(self, sigma: float | Tensor) -> RoundingNoise:
        """``sigma`` and the rounding of every cosine coefficient by its own step. Where steps are
        large, the picture may differ much from its JPEG.
        """
        white = float(torch.as_tensor(sigma).square().mean().sqrt())
        alike = super().likelihood_noise(white)
        assert isinstance(alike, float)
        return RoundingNoise(self._tables("cpu"), white, alike)

    def without_rounding(self) -> OperatorSpec:
        """The picture itself: what is left of a JPEG round trip."""
        return Denoise()

    @property
    def support(self) -> Support:
        """Blocks of 8x8 pixels."""
        return Support(0, 8)

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        tables_C88, to_ycc = self._tables(device), torch.tensor(TO_YCC)
        constants = tables_C88, to_ycc.to(device), torch.linalg.inv(to_ycc).to(device)
        return Bound(lambda x: _compress(x, *(t.to(x.dtype) for t in constants)))

    def _tables(self, device: torch.device | str) -> Tensor:
        """Quantisation steps of Y, Cb and Cr (3, 8, 8), in levels of 8 bits."""
        tables = [table(self.quality, each) for each in (LUMINANCE, CHROMINANCE, CHROMINANCE)]
        return torch.from_numpy(np.stack(tables)).float().to(device)


def averaged(scale: float) -> bool:
    """Whether reducing the sides by this factor leaves too little of a JPEG's rounding to count
    with it.
    """
    return scale <= 0.5


class RoundingNoise:
    """White noise and the rounding of a JPEG's coefficients, whose errors are independent and
    uniform, here taken for normal. Implements :class:`aps_core.numerics.likelihood.ColouredNoise`.

    Blocks that begin elsewhere, because the picture was cut, change little: what matters is that
    high frequencies were rounded most.
    """

    def __init__(self, tables_C88: Tensor, white: float, deviation: float) -> None:
        """``tables``: steps in levels of 8 bits. ``white``: standard deviation of the white noise
        on the [-1, 1] scale. ``deviation``: of white noise in the place of both.
        """
        self.deviation = deviation
        chroma_C11 = torch.tensor((1.0, CHROMA, CHROMA))[:, None, None] / 127.5
        white_C11 = (white * torch.tensor(TO_YCC)).norm(dim=1)[:, None, None]
        variance_C88 = white_C11.square() + (chroma_C11 * tables_C88).square() / 12
        self.precision_C88 = 1 / variance_C88
        """Of the coefficients of Y, Cb and Cr, for pictures in [-1, 1]."""

    def whitening(self, like_BCHW: Tensor) -> Callable[[Tensor], Tensor]:
        """To scaled coefficients (B, C, h, w, 8, 8) of h x w blocks. Those of the padding of a
        picture without whole blocks count as part of the others.
        """
        to_ycc = torch.tensor(TO_YCC).to(like_BCHW)
        height, width = like_BCHW.shape[2:]
        inside = height * width / ((height + -height % 8) * (width + -width % 8))
        scale_C88 = self.deviation * (inside * self.precision_C88).sqrt()
        scale_C1188 = scale_C88.to(like_BCHW)[:, None, None]

        def whitened(residual_BCHW: Tensor) -> Tensor:
            ycc_BCHW = torch.einsum("ij,bjhw->bihw", to_ycc, residual_BCHW)
            values: Tensor = scale_C1188 * block_coefficients(ycc_BCHW)
            return values

        return whitened


def block_coefficients(x_BCHW: Tensor) -> Tensor:
    """Cosine coefficients of the 8x8 blocks of edge-padded pictures, (B, C, h, w, 8, 8)."""
    from aps_core.imaging.dct_shrinkage import cosines

    height, width = x_BCHW.shape[2:]
    padded_BCHW = edge_pad(x_BCHW, -height % 8, -width % 8)
    blocks = padded_BCHW.unflatten(3, (-1, 8)).unflatten(2, (-1, 8)).transpose(3, 4)
    dct = cosines(8, x_BCHW)
    coefficients: Tensor = dct @ blocks @ dct.T
    return coefficients


def _compress(x_BCHW: Tensor, tables_C88: Tensor, to_ycc: Tensor, to_rgb: Tensor) -> Tensor:
    """JPEG round trip on 8x8 blocks of the edge-padded picture: colour transform, DCT,
    quantisation, and back.
    """
    from aps_core.imaging.dct_shrinkage import cosines

    _, _, height, width = x_BCHW.shape
    # subtracting 128 from every channel centres Y and leaves chroma unchanged
    ycc = torch.einsum("ij,bjhw->bihw", to_ycc, x_BCHW.add(1).mul(127.5).clamp(0, 255) - 128)
    table = tables_C88[:, None, None]
    coefficients = block_coefficients(ycc) / table
    coefficients = (coefficients + (coefficients.round() - coefficients).detach()) * table
    dct = cosines(8, x_BCHW)
    blocks = (dct.T @ coefficients @ dct).transpose(3, 4)
    restored = blocks.flatten(4).flatten(2, 3)[..., :height, :width]
    rgb = torch.einsum("ij,bjhw->bihw", to_rgb, restored) + 128
    return rgb.clamp(0, 255).div(127.5).sub(1)
