"""Running restorations, whose estimates are the inputs of a prior in training.

Pictures are measured by random operators (:mod:`training.random_measurement`). Every round asks
the network, fits its answer to the measurement, and takes the result for the next estimate; where
every pixel was measured by itself, rounds begin from the first estimate. So does
:mod:`aps_core.samplers.plug_and_play` later, and the network learns from the estimates that it will
meet.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from aps_core.numerics.steepest_descent import steepest_step
from training.measurement_kinds import Kinds
from training.random_measurement import RandomMeasurements, Sort


@dataclass
class Restorations:
    """Pictures (B, C, H, W) of one size, and how far their restoration is."""

    x_BCHW: Tensor
    measurements: RandomMeasurements
    first_BCHW: Tensor
    estimate_BCHW: Tensor
    pulled_BCHW: Tensor
    rounds: int = 0

    @classmethod
    def of(
        cls, x_BCHW: Tensor, factor: int, generator: Generator, kinds: Kinds = Kinds()
    ) -> Restorations:
        """Begins with classical estimates of measurements that are reduced by a factor."""
        measurements = RandomMeasurements.of(x_BCHW, factor, generator, kinds)
        first_BCHW = measurements.first_estimate()
        pulled_BCHW = steepest_step(measurements, first_BCHW)
        return cls(x_BCHW, measurements, first_BCHW, first_BCHW, pulled_BCHW)

    def fitted(self, x_BCHW: Tensor, precision_BL: Tensor) -> Tensor:
        """The network's expected pictures (B, C, H, W), fitted to the measurements; differentiable
        in the pictures and in the precision with which their brightness holds.
        """
        precision_B1HW = precision_BL.unflatten(1, (1, *x_BCHW.shape[2:]))
        return self.measurements.fitted(x_BCHW, precision_B1HW)

    @torch.no_grad()
    def advance(self, fitted_BCHW: Tensor, noise_BHW: Tensor) -> None:
        """Ends a round: the fitted pictures or the first ones with noise are the next estimates."""
        next_BCHW = fitted_BCHW.clone()
        alone = self.measurements.of_sorts([Sort.PIXELS, Sort.CLIPPED])
        next_BCHW[alone] = self.first_BCHW[alone]
        self.estimate_BCHW = (next_BCHW + noise_BHW[:, None]).clamp(-1, 1)
        self.pulled_BCHW = steepest_step(self.measurements, self.estimate_BCHW)
        self.rounds += 1
