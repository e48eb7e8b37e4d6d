"""Random measurements of pictures, from whose estimates a prior learns in training.

The operators are of many kinds, and the network is not given which. The first estimate is
that of the sampler. A fit to the measurement is a linear system, and so are its
gradients (:mod:`training.fits`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from aps_core.imaging.dct_shrinkage import shrunk
from aps_core.imaging.total_variation import total_variation_estimate
from aps_core.numerics.steepest_descent import steepest_step
from aps_core.operators.jpeg import JPEG
from aps_core.sampling.first_estimate import COLOURS, FILLING, FILLING_SIGMA
from aps_core.sampling.shrinkage_estimate import shrunk_in_rounds
from training import block_rounding
from training.fits import Fitted, Linear, Seen, adjoint, conjugate_gradients, mixing
from training.measurement_kinds import Kinds
from training.random_kernels import blur, evenly, integer, log_number, narrow, number, point
from training.recorded import recorded
from training.transfer import moved

ESTIMATE_FITS = 8
"""Steps of conjugate gradients in every round of a first estimate."""
ESTIMATE_STEPS = 60
"""Of a first estimate with gaps."""


class Sort(Enum):
    """What a first estimate depends on."""

    PIXELS = auto()
    """Every pixel is measured by itself."""
    CLIPPED = auto()
    """The same, but some are clipped."""
    GAPS = auto()
    """The same, but some are missing."""
    COMPRESSED = auto()
    """A JPEG of every pixel."""
    MIXTURES = auto()
    """Blurred or reduced."""


SHARES = {Sort.GAPS: 0.22, Sort.CLIPPED: 0.12, Sort.COMPRESSED: 0.14}
"""Of the measurements at full size; the others are blurred, or only noisy."""


@dataclass(frozen=True)
class RandomMeasurements:
    """Of pictures (B, C, H, W), which were blurred, or not, and all reduced by the same factor; of
    those at full size, some have missing pixels, some were clipped, and some compressed as a JPEG.
    All are noisy.

    Implements :class:`aps_core.numerics.likelihood.Likelihood`.
    """

    sorts: tuple[Sort, ...]
    size: tuple[int, int]
    """Of the pictures."""
    factor: int
    kernel_B1KK: Tensor
    sigma_B: Tensor
    """Of the noise; of a JPEG, of white noise in the place of it and the rounding."""
    rounding_BC88: Tensor
    """Precision of a JPEG's coefficients (:mod:`training.block_rounding`)."""
    limit_B: Tensor
    """Of every value: of those beyond it, only the sign is known. Infinite, if not clipped."""
    seen_BChw: Tensor
    """The measurement, 0 where it is not known."""
    known_BChw: Tensor
    """1 where it is known, else 0."""
    beyond_BChw: Tensor
    """Signs of values beyond the limit."""
    kinds: Kinds

    temperature = None

    @classmethod
    def of(cls, x_BCHW: Tensor, factor: int, generator: Generator, kinds: Kinds = Kinds()) -> Self:
        """Measures pictures in [-1, 1] at random."""
        drawn = [_Draw(generator, factor, place) for place in evenly(generator, len(x_BCHW))]
        device, (rows, columns) = x_BCHW.device, x_BCHW.shape[2:]
        kernel_B1KK = moved(torch.stack([one.kernel_KK for one in drawn])[:, None], device)
        y_BChw = mixing(kernel_B1KK, factor, rows, columns)(x_BCHW)
        for i, one in enumerate(drawn):
            if one.jpeg is not None:
                y_BChw[i] = _compressed(x_BCHW[i], one.jpeg, generator)
        clean_sigma_B = torch.tensor([one.sigma for one in drawn], device=device)
        noise_BChw = torch.randn(
            y_BChw.shape, generator=_on(device, generator), device=device, dtype=y_BChw.dtype
        )
        y_BChw = y_BChw + clean_sigma_B[:, None, None, None] * noise_BChw
        limit_B = torch.tensor([one.limit for one in drawn], device=device)
        beyond_BChw = y_BChw.sign() * (y_BChw.abs() > limit_B[:, None, None, None])
        known_BChw = 1 - beyond_BChw.abs()
        for i, one in enumerate(drawn):
            if one.sort == Sort.GAPS:
                drawn_hw = torch.rand(y_BChw.shape[2:], generator=generator)
                known_BChw[i] = (drawn_hw < one.share).to(known_BChw)
        sigmas = [one.rounding.deviation if one.rounding else one.sigma for one in drawn]
        rounding_BC88 = torch.stack([block_rounding.precision(one.rounding) for one in drawn])
        return cls(
            sorts=tuple(one.sort for one in drawn),
            size=(rows, columns),
            factor=factor,
            kernel_B1KK=kernel_B1KK,
            sigma_B=torch.tensor(sigmas, device=device),
            rounding_BC88=moved(rounding_BC88, device),
            limit_B=limit_B,
            seen_BChw=y_BChw * known_BChw,
            known_BChw=known_BChw,
            beyond_BChw=beyond_BChw,
            kinds=kinds,
        )

    def those(self, numbers: Sequence[int]) -> Self:
        """Some of the measurements."""
        rows = torch.tensor(numbers, device=self.sigma_B.device)
        return replace(
            self,
            sorts=tuple(self.sorts[i] for i in numbers),
            kernel_B1KK=self.kernel_B1KK[rows],
            sigma_B=self.sigma_B[rows],
            rounding_BC88=self.rounding_BC88[rows],
            limit_B=self.limit_B[rows],
            seen_BChw=self.seen_BChw[rows],
            known_BChw=self.known_BChw[rows],
            beyond_BChw=self.beyond_BChw[rows],
        )

    def of_sorts(self, sorts: Iterable[Sort]) -> list[int]:
        """Numbers of the measurements of such sorts."""
        wanted = set(sorts)
        return [i for i, sort in enumerate(self.sorts) if sort in wanted]

    @property
    def mixed(self) -> Linear:
        """Pictures with any number of colours to measurements without noise and gaps."""
        return mixing(self.kernel_B1KK, self.factor, *self.size)

    @property
    def information_B111(self) -> Tensor:
        """Inverse variance of every value's noise; 0 of a JPEG, whose coefficients count."""
        white_B = self.rounding_BC88.flatten(1).amax(1) == 0
        return (white_B * self.sigma_B**-2)[:, None, None, None]

    def negative_log_likelihood(self, x_BCHW: Tensor) -> Tensor:
        """Of pictures, (B,)."""
        off_BChw = self.known_BChw * self.mixed(x_BCHW) - self.seen_BChw
        if self.factor == 1:
            off_BChw = off_BChw + self.within(x_BCHW)
        loss_B: Tensor = (off_BChw.square() * self.information_B111).flatten(1).sum(1) / 2
        if self.factor > 1:
            return loss_B
        return loss_B + block_rounding.negative_log_likelihood(self.rounding_BC88, off_BChw)

    def within(self, x_BCHW: Tensor) -> Tensor:
        """How far pictures are within the limit where they should be beyond."""
        limit_B111 = self.limit_B.clamp(max=1)[:, None, None, None]
        return self.beyond_BChw * F.relu(limit_B111 - self.beyond_BChw * x_BCHW)

    def first_estimate(self) -> Tensor:
        """As :func:`aps_core.sampling.first_estimate.classical_estimate` (B, C, H, W)."""
        estimate_BCHW = self.seen_BChw.new_zeros(*self.seen_BChw.shape[:2], *self.size)
        for sort in Sort:
            if numbers := self.of_sorts([sort]):
                estimate_BCHW[numbers] = self.those(numbers)._recorded_estimate(sort)
        return estimate_BCHW

    def _recorded_estimate(self, sort: Sort) -> Tensor:
        """A first estimate, where all are of one sort."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

        def from_tensors(*values: Tensor) -> Tensor:
            new: dict[str, Any] = dict(zip(tensors, values, strict=True))
            return replace(self, **new)._estimate(sort)

        return recorded((sort, self.factor, self.kinds), from_tensors, *tensors.values())

    def _estimate(self, sort: Sort) -> Tensor:
        if sort == Sort.MIXTURES:
            return self._sharpened()
        if sort in (Sort.PIXELS, Sort.COMPRESSED):
            return shrunk(self.seen_BChw, self.sigma_B).clamp(-1, 1)
        if sort == Sort.CLIPPED:
            return self._filled(self.kinds.clipped_smoothness, self.kinds.filling_steps)
        return self._filled(0.0, ESTIMATE_STEPS)

    def _filled(self, smoothness: float, steps: int) -> Tensor:
        # a start with gaps would be kept: curvature counts of the change as well
        filled_BCHW = total_variation_estimate(
            replace(self, sigma_B=self.sigma_B.clamp(min=FILLING_SIGMA)),
            torch.zeros_like(self.seen_BChw),
            weight=smoothness,
            curvature_weight=0.0 if smoothness else FILLING,
            colour_weight=COLOURS if smoothness else 1.0,
            steps=steps,
            learning_rate=0.7 / math.sqrt(steps),
        )
        noisy_BCHW = self.seen_BChw.where(self.known_BChw > 0, filled_BCHW)
        return shrunk(noisy_BCHW, self.sigma_B).clamp(-1, 1)

    @torch.no_grad()
    def _sharpened(self) -> Tensor:
        start_BCHW = F.interpolate(self.seen_BChw, size=self.size, mode="bilinear").clamp(-1, 1)
        mixed = self.mixed
        back = adjoint(mixed, start_BCHW)

        def fitted(_: int, expected_BCHW: Tensor, weight_B: float | Tensor) -> Tensor:
            assert isinstance(weight_B, Tensor)
            weight_B111 = weight_B[:, None, None, None]

            def matrix(v_BCHW: Tensor) -> Tensor:
                return self.information_B111 * back(mixed(v_BCHW)) + weight_B111 * v_BCHW

            pull_BCHW = self.information_B111 * back(self.seen_BChw - mixed(expected_BCHW))
            return expected_BCHW + conjugate_gradients(matrix, pull_BCHW, ESTIMATE_FITS)

        return shrunk_in_rounds(steepest_step(self, start_BCHW), self.sigma_B.sqrt(), fitted)

    def fitted(self, x_BCHW: Tensor, precision_B1HW: Tensor) -> Tensor:
        """The pictures whose brightness is most probable, if it was normal around that of ``x``
        with the given precisions, and is measured; moved beyond the limit where it was clipped.
        Differentiable in both.
        """
        with torch.no_grad():
            off_BChw = self.seen_BChw - self.known_BChw * self.mixed(x_BCHW)
            weighed_B1hw = off_BChw.sum(1, keepdim=True) * self.information_B111
            pull_B1HW = adjoint(self.mixed, x_BCHW[:, :1])(weighed_B1hw)
            if self.factor == 1:
                pull_B1HW = pull_B1HW + block_rounding.pull(self.rounding_BC88, off_BChw)
            known_B1hw = self.known_BChw.sum(1, keepdim=True)
        seen = Seen(
            kernel_B1KK=self.kernel_B1KK,
            information_B1hw=known_B1hw * self.information_B111,
            rounding_BC88=self.rounding_BC88,
            factor=self.factor,
            area_weight=self.kinds.area_weight,
        )
        fitted_BCHW: Tensor = Fitted.apply(x_BCHW, precision_B1HW, pull_B1HW, seen)
        return fitted_BCHW + self.within(fitted_BCHW) if self.factor == 1 else fitted_BCHW


class _Draw:
    """What is drawn for one picture."""

    def __init__(self, generator: Generator, factor: int, kind: float) -> None:
        """``kind``: uniform number below 1, which chooses the sort."""
        if factor > 1:
            sort, kernel_KK = Sort.MIXTURES, narrow(generator)
        else:
            sort, kernel_KK = _at_full_size(generator, kind)
        self.sort = sort
        self.kernel_KK = kernel_KK
        mixtures, clipped = self.sort == Sort.MIXTURES, self.sort == Sort.CLIPPED
        low, high = (0.005, 0.12) if mixtures else (0.01, 0.05) if clipped else (0.02, 0.3)
        self.sigma = log_number(generator, low, high)
        self.limit = number(generator, 0.25, 0.8) - 3 * self.sigma if clipped else math.inf
        self.share = number(generator, 0.2, 0.9) if self.sort == Sort.GAPS else 1.0
        """Of the pixels that are known."""
        compressed = self.sort == Sort.COMPRESSED
        self.jpeg = JPEG(quality=10 + integer(generator, 80)) if compressed else None
        self.rounding = self.jpeg.likelihood_noise(self.sigma) if self.jpeg else None


def _at_full_size(generator: Generator, kind: float) -> tuple[Sort, Tensor]:
    """A sort and a kernel, by a uniform number below 1."""
    for sort, share in SHARES.items():
        if kind < share:
            return sort, point()
        kind -= share
    kernel_KK = blur(generator, kind / (1 - sum(SHARES.values())))
    return Sort.MIXTURES if kernel_KK.amax() < 1 else Sort.PIXELS, kernel_KK


def _compressed(x_CHW: Tensor, jpeg: JPEG, generator: Generator) -> Tensor:
    """To a JPEG and back; its blocks begin anywhere, as they do in a view of a picture."""
    top, left = integer(generator, 8), integer(generator, 8)
    larger_1CHW = F.pad(x_CHW[None], (left, 0, top, 0), "replicate")
    _, channels, rows, columns = larger_1CHW.shape
    seen_1CHW = jpeg.bind((channels, rows, columns), x_CHW.device)(larger_1CHW)
    return seen_1CHW[0, :, top:, left:]


def _on(device: torch.device, generator: Generator) -> Generator:
    """A generator on a device, seeded by another."""
    if generator.device == device:
        return generator
    return Generator(device).manual_seed(integer(generator, 2**62))
