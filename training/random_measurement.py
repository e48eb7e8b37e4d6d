"""Random measurements of pictures, from whose estimates a prior learns in training.

The operators are of many kinds, and the network is not given which. The first estimate is
that of the sampler. A fit to the measurement is a linear system, and so are its
gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from aps_core.blind.conjugate_gradients import solve
from aps_core.imaging.dct_shrinkage import shrunk
from aps_core.imaging.total_variation import total_variation_estimate
from aps_core.operators.blur import reflecting_filter
from aps_core.operators.jpeg import JPEG
from aps_core.samplers.first_estimate import FILLING
from aps_core.samplers.plug_and_play import AREA_WEIGHT
from aps_core.sampling.brightness_fit import single_pixels
from aps_core.sampling.shrinkage_estimate import shrinkage_estimate

REACH = 12
"""Of a blur kernel in pixels."""
MISSING, CLIPPED, COMPRESSED = 0.2, 0.08, 0.14
"""Shares of the measurements at full size."""
FIT_STEPS = 24
"""Of conjugate gradients."""


@dataclass(frozen=True)
class Kinds:
    """Which measurements of a prior's pictures are drawn, and how they are fitted."""

    factors: tuple[int, ...] = (1, 1, 1, 1, 2, 4)
    """By which sizes are reduced, equally often."""
    area_weight: float = AREA_WEIGHT
    """Of :class:`~aps_core.samplers.plug_and_play.PlugAndPlay`."""
    clipped_smoothness: float = 12.0
    """The same."""


class RandomMeasurement:
    """Of one picture: blurred (by a Gaussian, a disk, a straight or bent movement, or not) and
    perhaps reduced, with missing pixels, clipped, or compressed as a JPEG; and noisy.

    Implements :class:`aps_core.types.Likelihood`.
    """

    temperature = None

    def __init__(self, x_1CHW: Tensor, generator: Generator, kinds: Kinds = Kinds()) -> None:
        """Measures a picture in [-1, 1]; ``seen_1Chw`` is the result, 0 where it is not known."""
        self.generator = generator
        self.area_weight = kinds.area_weight
        self.clipped_smoothness = kinds.clipped_smoothness
        self.factor = kinds.factors[self._integer(len(kinds.factors))]
        kind = self._number(0, 1) if self.factor == 1 else 1.0
        missing, clipped = kind < MISSING, MISSING <= kind < MISSING + CLIPPED
        compressed = MISSING + CLIPPED <= kind < MISSING + CLIPPED + COMPRESSED
        if missing or clipped or compressed:
            kernel_kk = torch.ones(1, 1)
        else:
            kernel_kk = self._narrow() if self.factor > 1 else self._blur()
        self.kernel_kk = _trimmed(kernel_kk).to(x_1CHW)
        blurred = len(self.kernel_kk) > 1
        self.blur = reflecting_filter(self.kernel_kk, *x_1CHW.shape[2:]) if blurred else None
        mixed = blurred or self.factor > 1
        low, high = (0.005, 0.12) if mixed else (0.01, 0.05) if clipped else (0.02, 0.3)
        self.sigma = math.exp(self._number(math.log(low), math.log(high)))
        self.limit = self._number(0.25, 0.8) - 3 * self.sigma if clipped else math.inf
        """Of every value: of those beyond it, only the sign is known."""
        self.known_1cHW = torch.ones_like(x_1CHW[:, :1])
        self.jpeg = JPEG(quality=10 + self._integer(80)) if compressed else None
        clean_1Chw = self._compressed(x_1CHW, self.jpeg) if self.jpeg else self.applied(x_1CHW)
        noise_1Chw = torch.randn(clean_1Chw.shape, generator=generator).to(x_1CHW)
        self.seen_1Chw = clean_1Chw + self.sigma * noise_1Chw
        if self.jpeg:  # as the service does, rounding is taken for noise
            self.sigma = self.jpeg.likelihood_noise(self.sigma)
        self.beyond_1Chw = self.seen_1Chw.sign() * (self.seen_1Chw.abs() > self.limit)
        if missing:
            share = self._number(0.2, 0.9)
            drawn_HW = torch.rand(x_1CHW.shape[2:], generator=generator)
            self.known_1cHW = (drawn_HW < share)[None, None].to(x_1CHW)
        if clipped:
            self.known_1cHW = 1 - self.beyond_1Chw.abs()
        if self.factor == 1:
            self.seen_1Chw *= self.known_1cHW

    def _integer(self, end: int) -> int:
        return int(torch.randint(end, (), generator=self.generator))

    def _number(self, low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=self.generator))

    def _narrow(self) -> Tensor:
        return torch.ones(1, 1) if self._number(0, 1) < 0.7 else self._gaussian(0.3, 1.0)

    def _blur(self) -> Tensor:
        kind = self._number(0, 1)
        if kind < 0.2:
            return torch.ones(1, 1)
        if kind < 0.5:
            return self._gaussian(0.4, 3.5)
        return self._disk() if kind < 0.6 else self._movement()

    def _gaussian(self, low: float, high: float) -> Tensor:
        wide = math.exp(self._number(math.log(low), math.log(high)))
        narrow, turn = wide * self._number(0.4, 1), self._number(0, math.pi)
        axis = torch.arange(-REACH, REACH + 1.0)
        across = math.cos(turn) * axis + math.sin(turn) * axis[:, None]
        along = math.cos(turn) * axis[:, None] - math.sin(turn) * axis
        kernel_kk = (-(across / wide).square() / 2 - (along / narrow).square() / 2).exp()
        return kernel_kk / kernel_kk.sum()

    def _disk(self) -> Tensor:
        axis = torch.arange(-REACH, REACH + 1.0)
        distance = (axis.square() + axis.square()[:, None]).sqrt()
        kernel_kk = (self._number(1, 5) + 0.5 - distance).clamp(0, 1)
        return kernel_kk / kernel_kk.sum()

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
        return kernel_kk / kernel_kk.sum()

    def _compressed(self, x_1CHW: Tensor, jpeg: JPEG) -> Tensor:
        """To a JPEG and back; its blocks begin anywhere, as they do in a view of a picture."""
        top, left = self._integer(8), self._integer(8)
        larger_1CHW = F.pad(x_1CHW, (left, 0, top, 0), "replicate")
        _, channels, rows, columns = larger_1CHW.shape
        seen_1CHW = jpeg.bind((channels, rows, columns), x_1CHW.device)(larger_1CHW)
        return seen_1CHW[..., top:, left:]

    def applied(self, x_1CHW: Tensor) -> Tensor:
        """The measurement (1, C, h, w) without noise, of a picture with any number of channels."""
        y_1CHW = self.blur(x_1CHW) if self.blur else x_1CHW
        if self.factor > 1:
            return F.interpolate(
                y_1CHW, scale_factor=1 / self.factor, mode="bicubic", antialias=True
            )
        return y_1CHW * self.known_1cHW

    def negative_log_likelihood(self, x_1CHW: Tensor) -> Tensor:
        """Of a picture, (1,)."""
        off_1Chw = self.applied(x_1CHW) - self.seen_1Chw
        if self.clipped:
            off_1Chw = off_1Chw + self._within(x_1CHW)
        return (off_1Chw / self.sigma).square().flatten(1).sum(1) / 2

    @property
    def clipped(self) -> bool:
        """Whether values beyond :attr:`limit` are not known."""
        return self.limit < math.inf

    def _within(self, x_1CHW: Tensor) -> Tensor:
        """How far a picture is within the limit where it should be beyond."""
        return self.beyond_1Chw * F.relu(self.limit - self.beyond_1Chw * x_1CHW)

    def first_estimate(self) -> Tensor:
        """As :func:`aps_core.samplers.first_estimate.classical_estimate` (1, C, H, W)."""
        rows, columns = self.known_1cHW.shape[2:]
        if bool((self.known_1cHW == 0).any()):
            # a start with gaps would be kept: curvature counts of the change as well
            nothing_1CHW = torch.zeros(1, 3, rows, columns).to(self.seen_1Chw)
            smoothness = self.clipped_smoothness if self.clipped else 0.0
            return total_variation_estimate(
                self,
                nothing_1CHW,
                weight=smoothness,
                curvature_weight=0.0 if smoothness else FILLING,
                steps=100,
                learning_rate=0.07,
            )
        if self.factor == 1 and self.blur is None:
            return shrunk(self.seen_1Chw, self.sigma).clamp(-1, 1)
        start_1CHW = F.interpolate(self.seen_1Chw, size=(rows, columns), mode="bilinear")
        return shrinkage_estimate(self, start_1CHW.clamp(-1, 1), self.sigma, steps=100)

    @property
    def scale(self) -> float:
        """Of the squared error of brightness, which is the same change in all colours; a single
        channel stands for all, where the same is known of them.
        """
        return len(self.seen_1Chw[0]) / len(self.known_1cHW[0]) / self.sigma**2

    def hessian(self, v_11HW: Tensor) -> Tensor:
        """Product of a change of the brightness with the Hessian matrix of the negative
        log-likelihood.
        """
        with torch.enable_grad():
            product = torch.func.vjp(self.applied, v_11HW)
        back_11HW: Tensor = self.scale * product[1](product[0])[0]
        return back_11HW

    def pull(self, x_1CHW: Tensor) -> Tensor:
        """Minus the gradient of the negative log-likelihood in the brightness (1, 1, H, W)."""
        off_1chw = self.seen_1Chw - self.applied(x_1CHW)
        if len(self.known_1cHW[0]) == 1:
            off_1chw = off_1chw.mean(1, keepdim=True)
        with torch.enable_grad():
            adjoint = torch.func.vjp(self.applied, torch.zeros_like(x_1CHW[:, :1]))[1]
        pull_11HW: Tensor = self.scale * adjoint(off_1chw)[0]
        return pull_11HW

    def fitted(self, x_1CHW: Tensor, precision_11HW: Tensor) -> Tensor:
        """The picture whose brightness is most probable, if it was normal around that of ``x`` with
        the given precisions, and is measured; moved beyond the limit where it was clipped.
        Differentiable in both.
        """
        fitted_1CHW: Tensor = _Fitted.apply(x_1CHW, precision_11HW, self)
        return fitted_1CHW + self._within(fitted_1CHW) if self.clipped else fitted_1CHW


class _Fitted(Function):
    """Solves ``(P + H) change = pull(x)`` with the prior's matrix P (:func:`_prior`) and the
    Hessian matrix H, by conjugate gradients, and the same system once more for the gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, x_1CHW: Tensor, precision_11HW: Tensor, seen: RandomMeasurement
    ) -> Tensor:
        change_11HW = _solved(seen, precision_11HW, seen.pull(x_1CHW))
        ctx.seen = seen
        ctx.save_for_backward(precision_11HW, change_11HW)
        return x_1CHW + change_11HW

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_1CHW: Tensor) -> tuple[Tensor, Tensor, None]:
        precision_11HW, change_11HW = ctx.saved_tensors
        grad_11HW = grad_1CHW.sum(1, keepdim=True)
        back_11HW = _solved(ctx.seen, precision_11HW, grad_11HW)
        measured_11HW = grad_11HW - _prior(precision_11HW, back_11HW, ctx.seen.area_weight)
        grad_x_1CHW = grad_1CHW - measured_11HW / grad_1CHW.shape[1]
        single_1HW = single_pixels(back_11HW[0]) * single_pixels(change_11HW[0])
        share = ctx.seen.area_weight
        weighed_11HW = (1 - share) * single_1HW[None] + share * back_11HW * change_11HW
        return grad_x_1CHW, -weighed_11HW, None


def _prior(precision_11HW: Tensor, v_11HW: Tensor, area_weight: float) -> Tensor:
    """Product of a change with the Hessian matrix of its divergence: that of single pixels, and
    a share ``area_weight`` of that of areas, as in
    :class:`aps_core.sampling.brightness_fit.BrightnessFit`.
    """
    with torch.enable_grad():
        single = torch.func.vjp(single_pixels, v_11HW[0])
        back_1HW = single[1](precision_11HW[0] * single[0])[0]
    areas_11HW = area_weight * precision_11HW * v_11HW
    product_11HW: Tensor = areas_11HW + (1 - area_weight) * back_1HW[None]
    return product_11HW


def _solved(seen: RandomMeasurement, precision_11HW: Tensor, goal_11HW: Tensor) -> Tensor:
    """x of ``(P + H) x = goal``."""
    scale_11HW = precision_11HW.rsqrt()

    def matrix(v_11HW: Tensor) -> Tensor:
        x_11HW = scale_11HW * v_11HW
        held_11HW = _prior(precision_11HW, x_11HW, seen.area_weight)
        return scale_11HW * (held_11HW + seen.hessian(x_11HW))

    zero_11HW = torch.zeros_like(goal_11HW)
    v_11HW = solve(matrix, scale_11HW * goal_11HW, zero_11HW, FIT_STEPS, tolerance=1e-6)
    return scale_11HW * v_11HW


def _trimmed(kernel_kk: Tensor) -> Tensor:
    """A kernel without its empty border."""
    middle = len(kernel_kk) // 2
    far = (kernel_kk > 1e-3 * kernel_kk.amax()).nonzero() - middle
    reach = int(far.abs().amax())
    inside = slice(middle - reach, middle + reach + 1)
    kept_kk = kernel_kk[inside, inside]
    return kept_kk / kept_kk.sum()
