"""Running restorations, whose estimates are the inputs of a prior in training.

A picture is measured by a random operator (:mod:`training.random_measurement`). Every round asks
the network, fits its answer to the measurement, and takes the result for the next estimate: what
:mod:`aps_core.samplers.plug_and_play` does later, so the network learns from the estimates that it
will meet.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from aps_core.imaging.steepest_descent import steepest_step
from training.random_measurement import Kinds, RandomMeasurement


@dataclass
class Restoration:
    """A picture (C, H, W), and how far its restoration is."""

    x_CHW: Tensor
    measurement: RandomMeasurement
    estimate_CHW: Tensor
    pulled_CHW: Tensor
    rounds: int = 0

    @classmethod
    def of(cls, x_CHW: Tensor, generator: Generator, kinds: Kinds = Kinds()) -> Restoration:
        """Begins with a classical estimate."""
        measurement = RandomMeasurement(x_CHW[None], generator, kinds)
        estimate_1CHW = measurement.first_estimate()
        pulled_1CHW = steepest_step(measurement, estimate_1CHW)
        return cls(x_CHW, measurement, estimate_1CHW[0], pulled_1CHW[0])

    def fitted(self, x_CHW: Tensor, precision_L: Tensor) -> Tensor:
        """The network's expected picture (C, H, W), fitted to the measurement; differentiable in
        the picture and in the precision with which its brightness holds.
        """
        precision_11HW = precision_L.view(1, 1, *x_CHW.shape[1:])
        return self.measurement.fitted(x_CHW[None], precision_11HW)[0]

    @torch.no_grad()
    def advance(self, fitted_CHW: Tensor, noise_HW: Tensor) -> None:
        """Ends a round: the fitted picture with noise is the next estimate."""
        self.estimate_CHW = (fitted_CHW + noise_HW).clamp(-1, 1)
        self.pulled_CHW = steepest_step(self.measurement, self.estimate_CHW[None])[0]
        self.rounds += 1
