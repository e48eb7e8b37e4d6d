"""Evidence for a kernel, with the sharp picture integrated out.

    y = k * x + n,   x_i ~ N(0, gamma_i),   n ~ N(0, s^2)

x and y are the gradients of the sharp and of the blurred picture. Most gradients are near 0 and a
few, at edges, are large, so each has its own variance gamma_i, which is estimated too. The
posterior of x is approximated by independent Gaussians of means m and variances z (Levin et al.
2011, "Efficient marginal likelihood optimization in blind deconvolution"; Wipf & Zhang 2014,
"Revisiting Bayesian blind deconvolution", whose choice of gamma has no parameter).

    E step: m, z given k       M step: k = argmin |y - k * m|^2 + |k|^2 sum_i z_i, k >= 0, sum k = 1

The last term, which integrating over x adds to the misfit, prevents a delta from winning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.identify.blind.kernel import connected
from aps_core.identify.blind.thresholds import WEIGHT
from aps_core.imaging.filters import fast_length
from aps_core.numerics import conjugate_gradients

GRADIENT_STEPS = 20
"""Steps of accelerated projected gradients in an M step."""
CONJUGATE_STEPS = 10
"""Steps of conjugate gradients for the means, from the previous means."""
FIRST_ROUNDS = 5
"""Rounds of an E step for a new kernel, alternating m and gamma."""
OVERSHOOT = 1.7
"""Factor by which every M step is extrapolated, because EM's own steps are short."""


@dataclass(frozen=True)
class Posterior:
    """Approximate posterior of the sharp picture's gradients given a kernel."""

    mean_GHW: Tensor
    gamma_GHW: Tensor
    """Prior variances of the gradients."""
    variance_GHW: Tensor
    """Posterior variances of the gradients."""


class SparseGradients:
    """Evidence and EM for the kernel of one blurred picture."""

    def __init__(self, y_HW: Tensor, sigma: float) -> None:
        """
        Args:
            y_HW: the blurred picture, grey.
            sigma: standard deviation of its noise.
        """
        down_HW, right_HW = y_HW.diff(dim=0)[:, :-1], y_HW.diff(dim=1)[:-1]
        self.y_GHW = torch.stack([down_HW, right_HW])
        self.noise = 2 * sigma**2  # of a difference of two pixels

    def posterior(
        self, kernel_KK: Tensor, start: Posterior | None = None, rounds: int = FIRST_ROUNDS
    ) -> Posterior:
        """The E step.

        Args:
            kernel_KK: the current kernel.
            start: posterior under a similar kernel of the same side; None starts at y.
            rounds: number of estimates of gamma.
        """
        blur = _Blur(kernel_KK, self.y_GHW)
        power = float(kernel_KK.square().sum()) / self.noise
        if start is None:
            mean_GHW = blur.enclosed(self.y_GHW)
            gamma_GHW = mean_GHW.square() + mean_GHW.square().mean()
        else:
            mean_GHW, gamma_GHW = start.mean_GHW, start.gamma_GHW
        for _ in range(rounds):
            mean_GHW = self._means(blur, mean_GHW, gamma_GHW, power)
            variance_GHW = 1 / (power + 1 / gamma_GHW)
            gamma_GHW = mean_GHW.square() + variance_GHW
        return Posterior(mean_GHW, gamma_GHW, variance_GHW)

    def evidence(self, kernel_KK: Tensor, posterior: Posterior) -> float:
        """Lower bound of log p(y | kernel), up to a constant.

        Vertical and horizontal gradients share their pixels, so half of their evidence counts.
        """
        power = float(kernel_KK.square().sum()) / self.noise
        left_GHW = self.y_GHW - _Blur(kernel_KK, self.y_GHW)(posterior.mean_GHW)
        misfit = left_GHW.square().sum() / self.noise
        volume = torch.log1p(posterior.gamma_GHW * power).sum()
        size = (posterior.mean_GHW.square() / posterior.gamma_GHW).sum()
        return -float(misfit + volume + size) / 4

    def improved(self, kernel_KK: Tensor, steps: int) -> Tensor:
        """Kernel after ``steps`` of EM, without small or separate weights."""
        posterior = self.posterior(kernel_KK)
        for _ in range(steps):
            best_KK = self._likeliest(kernel_KK, posterior)
            kernel_KK = _on_simplex(kernel_KK + OVERSHOOT * (best_KK - kernel_KK))
            posterior = self.posterior(kernel_KK, posterior, rounds=1)
        return connected(kernel_KK, WEIGHT.improved)

    def _means(self, blur: _Blur, mean_GHW: Tensor, gamma_GHW: Tensor, power: float) -> Tensor:
        """argmin |y - k * m|^2 / noise + m^2 / gamma, by preconditioned conjugate gradients."""

        def normal(v_GHW: Tensor) -> Tensor:
            return blur.adjoint(blur(v_GHW)) / self.noise + v_GHW / gamma_GHW

        goal_GHW = blur.adjoint(self.y_GHW) / self.noise
        return conjugate_gradients.solve(
            normal, goal_GHW, mean_GHW, CONJUGATE_STEPS, scale=1 / (power + 1 / gamma_GHW)
        )

    def _likeliest(self, kernel_KK: Tensor, posterior: Posterior) -> Tensor:
        """The M step, by accelerated projected gradients (Beck & Teboulle 2009)."""
        picture, side = _Picture(posterior.mean_GHW, kernel_KK.shape[0]), kernel_KK.shape[0]
        weight = float(posterior.variance_GHW.sum())
        largest_KK = torch.full_like(kernel_KK, 1 / side)
        for _ in range(8):  # power iteration: the largest curvature bounds the step
            image_KK = picture.adjoint(picture(largest_KK)) + weight * largest_KK
            curvature = float(image_KK.norm())
            largest_KK = image_KK / curvature
        ahead_KK, momentum = kernel_KK, 1.0
        for _ in range(GRADIENT_STEPS):
            slope_KK = picture.adjoint(picture(ahead_KK) - self.y_GHW) + weight * ahead_KK
            next_KK = _on_simplex(ahead_KK - slope_KK / (1.1 * curvature))
            last, momentum = momentum, (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            ahead_KK = next_KK + (last - 1) / momentum * (next_KK - kernel_KK)
            kernel_KK = next_KK
        return kernel_KK


class _Blur:
    """Valid convolution of pictures (G, H + K - 1, W + K - 1) with a kernel."""

    def __init__(self, kernel_KK: Tensor, y_GHW: Tensor) -> None:
        self.side = kernel_KK.shape[0]
        self.height, self.width = (n + self.side - 1 for n in y_GHW.shape[1:])
        self.size = [fast_length(self.height), fast_length(self.width)]
        self.spectrum = torch.fft.rfft2(kernel_KK, self.size)

    def __call__(self, x_GHW: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(x_GHW, self.size) * self.spectrum
        full_GHW: Tensor = torch.fft.irfft2(spectrum, self.size)
        return full_GHW[:, self.side - 1 : self.height, self.side - 1 : self.width]

    def adjoint(self, y_GHW: Tensor) -> Tensor:
        padded_GHW = F.pad(y_GHW, (self.side - 1, 0, self.side - 1, 0))
        spectrum = torch.fft.rfft2(padded_GHW, self.size) * self.spectrum.conj()
        picture_GHW: Tensor = torch.fft.irfft2(spectrum, self.size)
        return picture_GHW[:, : self.height, : self.width]

    def enclosed(self, y_GHW: Tensor) -> Tensor:
        """Pictures padded by replicating their borders to the size of the convolution's input."""
        return F.pad(y_GHW[None], (self.side // 2,) * 4, mode="replicate")[0]


class _Picture:
    """The same convolution as a function of the kernel."""

    def __init__(self, x_GHW: Tensor, side: int) -> None:
        self.side = side
        self.height, self.width = x_GHW.shape[1:]
        self.size = [fast_length(self.height), fast_length(self.width)]
        self.spectrum = torch.fft.rfft2(x_GHW, self.size)

    def __call__(self, kernel_KK: Tensor) -> Tensor:
        spectrum = self.spectrum * torch.fft.rfft2(kernel_KK, self.size)
        full_GHW: Tensor = torch.fft.irfft2(spectrum, self.size)
        return full_GHW[:, self.side - 1 : self.height, self.side - 1 : self.width]

    def adjoint(self, y_GHW: Tensor) -> Tensor:
        padded_GHW = F.pad(y_GHW, (self.side - 1, 0, self.side - 1, 0))
        spectrum = (torch.fft.rfft2(padded_GHW, self.size) * self.spectrum.conj()).sum(0)
        kernel_HW: Tensor = torch.fft.irfft2(spectrum, self.size)
        return kernel_HW[: self.side, : self.side]


def _on_simplex(kernel_KK: Tensor) -> Tensor:
    """Projection to weights >= 0 with sum 1 (Duchi et al. 2008)."""
    sorted_N = kernel_KK.flatten().sort(descending=True).values
    number_N = torch.arange(1, len(sorted_N) + 1, device=kernel_KK.device)
    excess_N = (sorted_N.cumsum(0) - 1) / number_N
    last = int((sorted_N > excess_N).sum()) - 1
    return (kernel_KK - excess_N[last]).clamp(min=0)
