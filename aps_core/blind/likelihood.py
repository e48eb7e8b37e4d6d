"""Likelihoods of a blur given pictures from the posterior: what an M step maximises."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from aps_core.operators.base import OperatorSpec

DETAIL = (0.0, *torch.logspace(-2, 0, 12).tolist())
"""Standard deviations of the detail that are compared."""


@dataclass(frozen=True)
class WhiteNoise:
    """``y = k * x_b + n``: the pictures hold everything, the rest is noise."""

    y_CHW: Tensor
    sigma: float

    def __call__(self, blurs: list[OperatorSpec], x_BCHW: Tensor) -> Tensor:
        """log p(y | x_b, blur), (N, B)."""
        shape = (x_BCHW.shape[1], *self.y_CHW.shape[1:])
        seen_NBCHW = torch.stack([blur.bind(shape, x_BCHW.device)(x_BCHW) for blur in blurs])
        return -(seen_NBCHW - self.y_CHW).square().flatten(2).sum(2) / (2 * self.sigma**2)


@dataclass(frozen=True)
class UnseenDetail:
    """``y = k * (x_b + r) + n``: the pictures lack detail r, such as the tokenizer's error.

    r is white with an unknown deviation, and integrated out. In every frequency, y then deviates
    from ``k * x_b`` by a Gaussian of variance ``sigma^2 + detail^2 |K|^2`` (Whittle's likelihood).

    Pictures drawn under a wrong blur agree with y nearly as well as under the right one, so with
    white noise alone EM hardly moves. Here a blur that is too sharp predicts detail in y that is
    not there, and one that is too wide forbids detail that is.
    """

    y_CHW: Tensor
    sigma: float
    margin: int
    """Pixels along the border that are not compared: they depend on what lies outside."""

    def __call__(self, blurs: list[OperatorSpec], x_BCHW: Tensor) -> Tensor:
        """log p(y | x_b, blur), (N, B), with the detail's most likely deviation."""
        return torch.stack([self._of(blur, x_BCHW) for blur in blurs])

    def _of(self, blur: OperatorSpec, x_BCHW: Tensor) -> Tensor:
        device, margin = x_BCHW.device, self.margin
        channels, height, width = self.y_CHW.shape
        inner = (..., slice(margin, height - margin), slice(margin, width - margin))
        misses_BCHW = (blur.bind((channels, height, width), device)(x_BCHW) - self.y_CHW)[inner]
        height, width = misses_BCHW.shape[2:]
        power_BHF = torch.fft.rfft2(misses_BCHW * _window(height, width, device)).abs().square()
        power_BHF = power_BHF.mean(1)
        point_1CHW = torch.zeros(1, 1, height, width, device=device)
        point_1CHW[..., height // 2, width // 2] = 1
        spread_1CHW = blur.bind((1, height, width), device)(point_1CHW)
        passed_HF = torch.fft.rfft2(spread_1CHW[0, 0]).abs().square()
        detail_D11 = torch.tensor(DETAIL, device=device)[:, None, None]
        variance_DHF = self.sigma**2 + detail_D11.square() * passed_HF
        cost_DBHF = variance_DHF.log()[:, None] + power_BHF / variance_DHF[:, None]
        loglik_DB = -cost_DBHF.sum((2, 3))
        best_B: Tensor = loglik_DB[int(loglik_DB.sum(1).argmax())]
        return best_B


def _window(height: int, width: int, device: torch.device) -> Tensor:
    """Hann window (H, W); the power of windowed white noise is its variance."""
    down = torch.hann_window(height, periodic=False, device=device)
    right = torch.hann_window(width, periodic=False, device=device)
    window: Tensor = torch.outer(down, right)
    return window.div_(window.norm())
