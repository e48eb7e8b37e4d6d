"""Likelihoods of a blur given pictures from the posterior; an M step maximises them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from aps_core.operators.base import OperatorSpec

DETAIL = (0.0, *torch.logspace(-2, 0, 12).tolist())
"""Candidate standard deviations of the missing detail, or of the picture, on the [-1, 1] scale."""


@dataclass(frozen=True)
class WhiteNoise:
    """``y = k * x_b + n`` with complete pictures and white Gaussian noise n. Only a baseline for
    comparisons.
    """

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

    r is white with an unknown deviation and integrated out. At every frequency, y then deviates
    from ``k * x_b`` by a Gaussian of variance ``sigma^2 + detail^2 |K|^2`` (Whittle's likelihood).

    Pictures drawn under a wrong blur fit y nearly as well as those drawn under the right one, so EM
    with white noise alone makes little progress. In this model, too narrow a blur predicts detail
    that y lacks, and too wide a blur excludes detail that y has.
    """

    y_CHW: Tensor
    sigma: float
    margin: int
    """Border in pixels that is not compared, because it depends on what lies outside."""

    def __call__(self, blurs: list[OperatorSpec], x_BCHW: Tensor) -> Tensor:
        """log p(y | x_b, blur), (N, B), with the detail's most likely deviation."""
        return torch.stack([self._of(blur, x_BCHW) for blur in blurs])

    def _of(self, blur: OperatorSpec, x_BCHW: Tensor) -> Tensor:
        device, margin = x_BCHW.device, self.margin
        channels, height, width = self.y_CHW.shape
        seen_BCHW = blur.bind((channels, height, width), device)(x_BCHW)
        passed_HF = _passed(blur, height - 2 * margin, width - 2 * margin, device)
        return self.best(self.power(seen_BCHW), passed_HF)[0]

    def power(self, seen_BCHW: Tensor) -> Tensor:
        """Power (B, H, W // 2 + 1) of the residuals of blurred pictures, without the border."""
        margin, (height, width) = self.margin, self.y_CHW.shape[1:]
        inner = (..., slice(margin, height - margin), slice(margin, width - margin))
        misses_BCHW = (seen_BCHW - self.y_CHW)[inner]
        window_HW = _window(height - 2 * margin, width - 2 * margin, misses_BCHW.device)
        power_BHF: Tensor = torch.fft.rfft2(misses_BCHW * window_HW).abs().square().mean(1)
        return power_BHF

    def best(self, power_BHF: Tensor, passed_HF: Tensor) -> tuple[Tensor, Tensor]:
        """Log likelihoods (B,) and variance (H, W // 2 + 1) for the most likely deviation of r."""
        detail_D11 = torch.tensor(DETAIL, device=power_BHF.device)[:, None, None]
        variance_DHF = self.sigma**2 + detail_D11.square() * passed_HF
        cost_DBHF = variance_DHF.log()[:, None] + power_BHF / variance_DHF[:, None]
        loglik_DB = -cost_DBHF.sum((2, 3))
        best = int(loglik_DB.sum(1).argmax())
        return loglik_DB[best], variance_DHF[best]


@dataclass(frozen=True)
class PowerLaw:
    """``y = k * x + n`` for a Gaussian picture x whose power falls with the third power of the
    frequency. The picture is integrated out in closed form, so no samples are needed.
    """

    y_CHW: Tensor
    sigma: float
    margin: int
    """Border in pixels that is not used."""

    def __call__(self, blurs: list[OperatorSpec], x_BCHW: Tensor) -> Tensor:
        """log p(y | blur), (N, 1), with the most likely contrast; ``x_BCHW`` is not used."""
        margin, device = self.margin, self.y_CHW.device
        inside_CHW = self.y_CHW[:, margin : -margin or None, margin : -margin or None]
        height, width = inside_CHW.shape[1:]
        centred_CHW = inside_CHW - inside_CHW.mean((1, 2), keepdim=True)
        power_CHF = torch.fft.rfft2(centred_CHW * _window(height, width, device)).abs().square()
        down = torch.fft.fftfreq(height, device=device)[:, None]
        right = torch.fft.rfftfreq(width, device=device)[None]
        falling_HF = (torch.hypot(down, right) + 1 / height) ** -3
        contrast_D11 = torch.tensor(DETAIL[1:], device=device)[:, None, None]
        picture_DHF = contrast_D11.square() * falling_HF / falling_HF.mean()
        scores = []
        for blur in blurs:
            variance_DHF = self.sigma**2 + picture_DHF * _passed(blur, height, width, device)
            cost_D = (variance_DHF.log() + power_CHF.mean(0) / variance_DHF).sum((1, 2))
            scores.append(-cost_D.min())
        return torch.stack(scores)[:, None]


def _passed(blur: OperatorSpec, height: int, width: int, device: torch.device) -> Tensor:
    """Power transfer function of a blur, (H, W // 2 + 1)."""
    point_1CHW = torch.zeros(1, 1, height, width, device=device)
    point_1CHW[..., height // 2, width // 2] = 1
    spread_1CHW = blur.bind((1, height, width), device)(point_1CHW)
    passed_HF: Tensor = torch.fft.rfft2(spread_1CHW[0, 0]).abs().square()
    return passed_HF


def _window(height: int, width: int, device: torch.device) -> Tensor:
    """Hann window (H, W), normalised so that the power of windowed white noise is its variance."""
    down = torch.hann_window(height, periodic=False, device=device)
    right = torch.hann_window(width, periodic=False, device=device)
    window: Tensor = torch.outer(down, right)
    return window.div_(window.norm())
