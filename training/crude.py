"""Running restorations, from which a prior is told estimates in training.

A picture is measured by a random operator. Its first estimate is total-variation least squares;
every round asks the network, fits its answer to the measurement, and takes the result for the next
estimate: what :mod:`aps_core.samplers.plug_and_play` does later, so the network learns from the
estimates that it will meet. The operators are of many kinds, and the network is not told which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from aps_core.blind.conjugate_gradients import solve
from aps_core.imaging.total_variation import total_variation_estimate
from aps_core.tokenizers.pixels import PixelTokenizer

REACH = 12
"""Of a blur kernel in pixels."""
ROUNDS = 4
"""Of a restoration."""
NARROWEST = 0.02
"""Standard deviation of a pixel whose brightness the network is sure of."""


class RandomMeasurement:
    """Of one picture: blurred (by a Gaussian, a disk, a straight or bent movement, or not),
    perhaps reduced or with missing pixels, and noisy.

    Implements :class:`aps_core.types.Likelihood`.
    """

    temperature = None

    def __init__(self, x_1CHW: Tensor, generator: Generator) -> None:
        """Measures a picture in [-1, 1]; ``seen_1Chw`` is the result."""
        self.generator = generator
        self.factor = (1, 1, 1, 2, 4)[self._integer(5)]
        kernel_11kk = (self._narrow if self.factor > 1 else self._blur)()
        self.kernel_11kk = _trimmed(kernel_11kk).to(x_1CHW)
        self.known_11HW = torch.ones_like(x_1CHW[:, :1])
        if self.factor == 1 and self._number(0, 1) < 0.2:
            share = self._number(0.2, 0.9)
            drawn_HW = torch.rand(x_1CHW.shape[2:], generator=generator)
            self.known_11HW = (drawn_HW < share)[None, None].to(x_1CHW)
        low, high = (0.02, 0.3) if self.kernel_11kk.shape[-1] == 1 else (0.005, 0.12)
        self.sigma = math.exp(self._number(math.log(low), math.log(high)))
        clean_1Chw = self.applied(x_1CHW)
        noise_1Chw = torch.randn(clean_1Chw.shape, generator=generator).to(x_1CHW)
        self.seen_1Chw = clean_1Chw + self.sigma * noise_1Chw
        if self.factor == 1:
            self.seen_1Chw *= self.known_11HW

    def _integer(self, end: int) -> int:
        return int(torch.randint(end, (), generator=self.generator))

    def _number(self, low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=self.generator))

    def _narrow(self) -> Tensor:
        return torch.ones(1, 1, 1, 1) if self._number(0, 1) < 0.7 else self._gaussian(0.3, 1.0)

    def _blur(self) -> Tensor:
        kind = self._number(0, 1)
        if kind < 0.25:
            return torch.ones(1, 1, 1, 1)
        if kind < 0.6:
            return self._gaussian(0.4, 3.5)
        return self._disk() if kind < 0.7 else self._movement()

    def _gaussian(self, low: float, high: float) -> Tensor:
        wide = math.exp(self._number(math.log(low), math.log(high)))
        narrow, turn = wide * self._number(0.4, 1), self._number(0, math.pi)
        axis = torch.arange(-REACH, REACH + 1.0)
        across = math.cos(turn) * axis + math.sin(turn) * axis[:, None]
        along = math.cos(turn) * axis[:, None] - math.sin(turn) * axis
        kernel_kk = (-(across / wide).square() / 2 - (along / narrow).square() / 2).exp()
        return (kernel_kk / kernel_kk.sum())[None, None]

    def _disk(self) -> Tensor:
        axis = torch.arange(-REACH, REACH + 1.0)
        distance = (axis.square() + axis.square()[:, None]).sqrt()
        kernel_kk = (self._number(1, 5) + 0.5 - distance).clamp(0, 1)
        return (kernel_kk / kernel_kk.sum())[None, None]

    def _movement(self) -> Tensor:
        """A path of even speed, straight or evenly bent."""
        length, turn = self._number(3, 2 * REACH - 1), self._number(0, math.pi)
        bend = self._number(-2, 2) if self._number(0, 1) < 0.5 else 0.0
        times = torch.linspace(-0.5, 0.5, 200)
        angle = turn + bend * times
        path = torch.stack([angle.cos(), angle.sin()]).cumsum(1) * length / 200
        path = path - path.mean(1, keepdim=True) + REACH
        kernel_kk = torch.zeros(2 * REACH + 1, 2 * REACH + 1)
        corner = path.floor()
        for rows in (0, 1):
            for columns in (0, 1):
                near = corner + torch.tensor([[rows], [columns]])
                weight = (1 - (path - near).abs()).prod(0)
                y, x = near.long().clamp(0, 2 * REACH)
                kernel_kk.index_put_((y, x), weight, accumulate=True)
        return (kernel_kk / kernel_kk.sum())[None, None]

    def applied(self, x_1CHW: Tensor) -> Tensor:
        """The measurement (1, C, h, w) without noise, of a picture with any number of channels."""
        y_C1HW = x_1CHW.transpose(0, 1)
        reach = self.kernel_11kk.shape[-1] // 2
        if reach:
            y_C1HW = F.conv2d(F.pad(y_C1HW, (reach,) * 4, mode="replicate"), self.kernel_11kk)
        if self.factor > 1:
            y_C1HW = F.interpolate(
                y_C1HW, scale_factor=1 / self.factor, mode="bicubic", antialias=True
            )
            return y_C1HW.transpose(0, 1)
        return y_C1HW.transpose(0, 1) * self.known_11HW

    def negative_log_likelihood(self, x_1CHW: Tensor) -> Tensor:
        """Of a picture, (1,)."""
        off_1Chw = (self.applied(x_1CHW) - self.seen_1Chw) / self.sigma
        return off_1Chw.square().flatten(1).sum(1) / 2

    def first_estimate(self) -> Tensor:
        """Total-variation least squares (1, C, H, W)."""
        start_1CHW = F.interpolate(self.seen_1Chw, size=self.known_11HW.shape[2:], mode="bilinear")
        return total_variation_estimate(self, start_1CHW.clamp(-1, 1), steps=50, learning_rate=0.1)

    def fitted(self, x_1CHW: Tensor, deviation_11HW: Tensor, steps: int = 24) -> Tensor:
        """The picture whose brightness is most probable, if it was normal around that of ``x`` with
        the given standard deviations, and is measured: by conjugate gradients.
        """
        # the same change in all colours changes the brightness alone
        scale = len(x_1CHW[0]) / self.sigma**2

        def through(v_11HW: Tensor) -> Tensor:
            return self.applied(deviation_11HW * v_11HW)

        off_11hw = (self.seen_1Chw - self.applied(x_1CHW)).mean(1, keepdim=True)
        zero_11HW = torch.zeros_like(deviation_11HW)
        with torch.enable_grad():
            adjoint = torch.func.vjp(through, zero_11HW)[1]
        goal_11HW = scale * adjoint(off_11hw)[0]

        def matrix(v_11HW: Tensor) -> Tensor:
            back_11HW: Tensor = adjoint(through(v_11HW))[0]
            return v_11HW + scale * back_11HW

        v_11HW = solve(matrix, goal_11HW, zero_11HW, steps, tolerance=1e-6)
        return x_1CHW + deviation_11HW * v_11HW


def _trimmed(kernel_11kk: Tensor) -> Tensor:
    """A kernel without its empty border."""
    middle = kernel_11kk.shape[-1] // 2
    far = (kernel_11kk[0, 0] > 1e-3 * kernel_11kk.amax()).nonzero() - middle
    reach = int(far.abs().amax())
    inside = slice(middle - reach, middle + reach + 1)
    kept_11kk = kernel_11kk[:, :, inside, inside]
    return kept_11kk / kept_11kk.sum()


@dataclass
class Restoration:
    """A picture (C, H, W), its codes (L,), and how far its restoration is."""

    x_CHW: Tensor
    codes_L: Tensor
    measurement: RandomMeasurement
    crude_CHW: Tensor
    rounds: int = 0

    @classmethod
    def of(cls, x_CHW: Tensor, tokenizer: PixelTokenizer, generator: Generator) -> Restoration:
        """Begins with a total-variation estimate."""
        measurement = RandomMeasurement(x_CHW[None], generator)
        codes_L = tokenizer.encode(x_CHW[None])[0]
        return cls(x_CHW, codes_L, measurement, measurement.first_estimate()[0])

    def advance(self, p_LY: Tensor, colours_CHW: Tensor, levels_Y: Tensor, noise: float) -> None:
        """One round, from the network's answer for the present estimate. The next estimate is
        shifted by ``noise`` standard deviations of the answer at random.
        """
        mean_L, square_L = p_LY @ levels_Y, p_LY @ levels_Y.square()
        deviation_L = (square_L - mean_L.square()).clamp(min=NARROWEST**2).sqrt()
        deviation_11HW = deviation_L.view(1, 1, *self.x_CHW.shape[1:])
        x_1CHW = colours_CHW[None] + mean_L.view_as(deviation_11HW)
        crude_1CHW = self.measurement.fitted(x_1CHW, deviation_11HW)
        if noise:
            drawn = torch.randn(deviation_11HW.shape, generator=self.measurement.generator)
            crude_1CHW = crude_1CHW + noise * deviation_11HW * drawn.to(deviation_11HW)
        self.crude_CHW = crude_1CHW[0].clamp(-1, 1)
        self.rounds += 1
