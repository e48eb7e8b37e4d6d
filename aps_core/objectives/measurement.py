"""Agreement with a measurement: the negative log-likelihood of ``y`` under the decoded picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.imaging.resampling import mirror_pad
from aps_core.numerics.likelihood import Coverage, Pixels
from aps_core.types import BoundOperator, Features

if TYPE_CHECKING:
    from aps_core.numerics.likelihood import ColouredNoise, Noise

LEAST_SIGMA = 1e-3
"""Lower bound on the noise's standard deviation, an eighth of the distance between two levels of an
8-bit picture: a fit without tolerance would not converge.
"""


class MeasurementObjective:
    """``|| y - A(x) ||`` over the observed values, plus an optional perceptual distance at the size
    of A(x).

    The data term is a *sum* over the measurement. Adam ignores the scale of a loss, except through
    its epsilon: gradients of improbable codes below it would vanish. The perceptual term is scaled
    to the same sum, so its weight has the same meaning at every size.

    Clamping has zero gradient, so a fully clipped estimate could not recover. Where ``y`` is
    more than three sigma inside the range, the sensor did not clip, and the loss uses A(x) before
    clipping. For the true picture both are equal.

    Args:
        operator: A, bound to the picture's shape.
        y: one measurement (C, H, W) or (1, C, H, W) for all samples, or one per sample (B, C, H,
            W).
        sigma: standard deviation of its noise, on the scale of ``y``. A tensor gives every value
            its own (photon noise). Residuals are then divided by it and multiplied by its mean over
            the observed values. The noise floor and the misfit use this mean. Coloured noise
            counts as white until :meth:`whitened`.
        norm: 'l1' or 'l2' norm of the residual.
        perceptual: feature extractor of the perceptual term; None for none.
        perceptual_weight: weight of the perceptual term, >= 0.
    """

    def __init__(
        self,
        operator: BoundOperator,
        y: Tensor,
        sigma: Noise,
        norm: Literal["l1", "l2"] = "l1",
        perceptual: Features | None = None,
        perceptual_weight: float = 0.0,
    ) -> None:
        self.operator = operator
        weight = operator.weight
        y_BCHW = y if y.ndim == 4 else y[None]
        self.y_BCHW = y_BCHW if weight is None else y_BCHW * weight
        seen = y_BCHW.numel() if weight is None else weight.expand_as(y_BCHW).sum()
        self.observed = float(seen) / len(y_BCHW)
        self.norm = norm
        self.trust: Tensor | None = None
        self.coloured: ColouredNoise | None = None
        self.whitening: Callable[[Tensor], Tensor] | None = None
        if not isinstance(sigma, float | int | Tensor):
            self.coloured = sigma
            sigma = sigma.deviation
        deviation = sigma
        if isinstance(sigma, Tensor):
            spread = sigma.clamp(min=LEAST_SIGMA).expand_as(y_BCHW)
            counted = spread if weight is None else spread * weight
            sigma = float(counted.sum()) / len(y_BCHW) / self.observed
            self.trust = sigma / spread
        sigma = self.sigma = max(sigma, LEAST_SIGMA)
        # Expected misfit of the true picture: mean absolute or mean squared Gaussian noise.
        self.noise_floor = sigma * math.sqrt(2 / math.pi) if norm == "l1" else sigma**2
        # L2 is Gaussian noise; L1 is Laplace noise of the same mean absolute value.
        self.temperature = self.noise_floor if norm == "l1" else 2 * sigma**2
        self.inside_BCHW = self.y_BCHW.abs() < 1 - 3 * deviation
        self._gains: dict[torch.Size, float | None] = {}
        self.perceptual = perceptual if perceptual_weight else None
        self.perceptual_weight = perceptual_weight
        if self.perceptual is not None:
            self.target = [f.detach() for f in self.perceptual(self.y_BCHW)]

    def __call__(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and misfit per sample, each (B,). The misfit is a mean over the observed values."""
        compared, measured = self._measured(x_BCHW)
        loss_B = self._norm(compared)
        misfit_B = (self._norm(measured) if self.operator.clips else loss_B).detach()
        if self.perceptual is not None:
            distance_B = sum(
                (f - t).square().flatten(1).mean(1)
                for f, t in zip(self.perceptual(measured), self.target, strict=True)
            )
            loss_B = loss_B + self.perceptual_weight * self.observed * distance_B
        return loss_B, misfit_B / self.observed

    def whitened(self) -> Self:
        """A copy that whitens residuals, if the noise is coloured."""
        changed = copy(self)
        if self.coloured is not None:
            changed.whitening = self.coloured.whitening(self.y_BCHW)
        return changed

    def noisier(self, least: float) -> Self:
        """A copy with white noise added to the measurement (the same in every call), so that the
        deviation is at least ``least``. Unchanged if the noise varies between values or is
        coloured.
        """
        changed = copy(self)
        if self.sigma >= least or self.trust is not None or self.coloured is not None:
            return changed
        drawn = torch.randn(self.y_BCHW.shape, generator=torch.Generator().manual_seed(0))
        added_BCHW = math.sqrt(least**2 - self.sigma**2) * drawn.to(self.y_BCHW)
        weight, ratio = self.operator.weight, least / self.sigma
        changed.y_BCHW = self.y_BCHW + (added_BCHW if weight is None else added_BCHW * weight)
        changed.sigma = least
        changed.noise_floor *= ratio if self.norm == "l1" else ratio**2
        changed.temperature *= ratio if self.norm == "l1" else ratio**2
        return changed

    def negative_log_likelihood(self, x_BCHW: Tensor) -> Tensor:
        """``-log q(y | x)`` (B,) in nats up to a constant, for Gaussian noise whatever the norm."""
        residual = self._residual(self._measured(x_BCHW)[0]) / self.sigma
        return residual.square().flatten(1).sum(1) / 2

    def coverage(self, x_BCHW: Tensor) -> Coverage:
        """'gaps' if A has a weight or clips, 'pixels' if A only scales pixels, else 'mixtures'."""
        if self.operator.clips or self.operator.weight is not None:
            return "gaps"
        return "mixtures" if self._gain(x_BCHW) is None else "pixels"

    def pixels(self, x_BCHW: Tensor) -> Pixels | None:
        """Pixels of ``y`` divided by A's gain; None if A is not a scaling. Beyond the measured area
        they are mirrored and marked unknown.
        """
        gain = self._gain(x_BCHW)
        if gain is None:
            return None
        y_BCHW = self.y_BCHW.expand(len(x_BCHW), -1, -1, -1)
        weight = self.operator.weight
        known_BCHW = self.inside_BCHW if self.operator.clips else torch.ones_like(y_BCHW).bool()
        known_BCHW = (known_BCHW if weight is None else known_BCHW & (weight > 0)).expand_as(y_BCHW)
        below, beside = (
            n - seen for n, seen in zip(x_BCHW.shape[2:], y_BCHW.shape[2:], strict=True)
        )
        return Pixels(
            y_BCHW=mirror_pad(y_BCHW, (0, below), (0, beside)) / gain,
            known_BCHW=F.pad(known_BCHW, (0, beside, 0, below), value=False),
            sigma=self.sigma / gain,
            missing=weight is not None,
            white=self.whitening is None,
            even=self.trust is None,
        )

    def _gain(self, x_BCHW: Tensor) -> float | None:
        """Scalar gain of A for pictures of this size; None if A is not a scaling."""
        size = x_BCHW.shape[1:]
        if size not in self._gains:
            self._gains[size] = self._gain_of(x_BCHW[:1])
        return self._gains[size]

    def _gain_of(self, like_1CHW: Tensor) -> float | None:
        drawn = torch.rand(like_1CHW.shape, generator=torch.Generator().manual_seed(0))
        drawn_BCHW = drawn.to(like_1CHW)
        measured = self.operator.unclipped(drawn_BCHW)
        seen = drawn_BCHW[..., : measured.shape[-2], : measured.shape[-1]]
        if measured.shape != seen.shape:
            return None
        if self.operator.weight is not None:
            measured, seen = measured * self.operator.weight, seen * self.operator.weight
        gain = float((measured * seen).sum() / seen.square().sum())
        return gain if gain > 0 and torch.allclose(measured, gain * seen, atol=1e-4) else None

    def _measured(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """A(x), unclipped where the sensor did not clip, and A(x); both 0 where unobserved."""
        compared = measured = self.operator.unclipped(x_BCHW)
        if self.operator.clips:
            measured = compared.clamp(-1, 1)
            compared = torch.where(self.inside_BCHW, compared, measured)
        if self.operator.weight is not None:
            compared, measured = compared * self.operator.weight, measured * self.operator.weight
        return compared, measured

    def _residual(self, measured_BCHW: Tensor) -> Tensor:
        residual = measured_BCHW - self.y_BCHW
        if self.whitening is not None:
            return self.whitening(residual)
        return residual if self.trust is None else residual * self.trust

    def _norm(self, measured_BCHW: Tensor) -> Tensor:
        """Norm of the residual, summed over the measurement, (B,)."""
        residual = self._residual(measured_BCHW)
        return (residual.abs() if self.norm == "l1" else residual.square()).flatten(1).sum(1)
