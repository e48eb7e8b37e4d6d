"""The inner optimisation of :mod:`aps_core.samplers.plug_and_play`: fits the brightness of pixels
to the measurement.

Shapes: see :mod:`aps_core.types`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.numerics.lbfgs import minimum
from aps_core.numerics.likelihood import MeasurementLikelihood
from aps_core.sampling.colour_fit import fitted_colours
from aps_core.sampling.inner_watch import InnerWatch
from aps_core.tokenizers.pixels import brightness
from aps_core.types import Denoised, Objective

AREA = 8
"""Side, in pixels, of the areas whose mean brightness is left to the measurement."""
LEAST_WEIGHT = 0.01
"""Lower bound on a pixel's weight, when it sets the scale of the pixel's change."""


def single_pixels(x_BHW: Tensor) -> Tensor:
    """Subtracts the brightness of areas from brightness (B, H, W): the means over squares of
    ``AREA`` pixels, interpolated.
    """
    x_B1HW = x_BHW[:, None]
    means_B1hw = F.avg_pool2d(x_B1HW, AREA, ceil_mode=True, count_include_pad=False)
    areas_B1HW = F.interpolate(means_B1hw, size=x_BHW.shape[1:], mode="bilinear")
    return (x_B1HW - areas_B1HW)[:, 0]


def square_of_change(change_BHW: Tensor, area_weight: float) -> Tensor:
    """Weighted squares (B, H, W) of a change of brightness: ``area_weight`` times the square of the
    change, plus ``1 - area_weight`` times the square after subtracting the brightness of areas.
    """
    if area_weight == 1:
        return change_BHW.square()  # equal, but faster
    single_BHW = single_pixels(change_BHW)
    return area_weight * change_BHW.square() + (1 - area_weight) * single_BHW.square()


class BrightnessFit:
    """Fits the brightness b of every pixel to the measurement:

        min_b  objective(b + colours) / temperature + w sum_i f_i square(b - m)_i / (2 v_i)

    with means m, variances v and weights f predicted by the prior. The second term is the
    divergence between normal distributions that differ in their mean. Changes of an area's
    brightness count less in its square (:func:`square_of_change`): the prior's errors at
    neighbouring pixels are correlated, and treated as independent they would outweigh the
    measurement, which determines the mean of an area well. The loss is convex if the objective is.
    L-BFGS minimises it over changes scaled so that the divergence has the same curvature at all
    pixels.
    """

    x_hat_BCHW: Tensor
    misfit_B: Tensor

    def __init__(
        self,
        objective: Objective,
        denoised: Denoised,
        prior_weight: float,
        area_weight: float,
    ) -> None:
        """
        Args:
            objective: loss of the fitted pictures.
            denoised: the prior's prediction m, v, colours and f.
            prior_weight: w.
            area_weight: share of an area's change that counts; see :func:`square_of_change`.
        """
        self.objective = objective
        self.mean_BL, self.variance_BL, self.colours_BCHW, firm_BL = denoised
        self.weight_BL = prior_weight * firm_BL
        self.area_weight = area_weight
        self.temperature = objective.temperature or 1.0
        self.unit_BL = (self.variance_BL / self.weight_BL.clamp(min=LEAST_WEIGHT)).sqrt()
        self.change_BL = torch.zeros_like(self.mean_BL)

    def run(self, steps: int, watch: InnerWatch) -> list[float]:
        """Takes about ``steps`` steps, fewer if the loss stops falling. Returns the loss of every
        evaluation in the objective's units, mean over the pictures.

        Raises:
            SamplingDiverged: the loss is not finite.
        """
        curve: list[float] = []

        def evaluated(change_BL: Tensor) -> Tensor:
            loss = self._loss(change_BL)
            reported = self.temperature / len(change_BL) * loss.detach()
            curve.append(float(reported))
            watch(min(len(curve), steps), steps, reported, self.x_hat_BCHW)
            return loss

        self.change_BL = minimum(evaluated, self.change_BL, steps)
        self._loss(self.change_BL)  # L-BFGS may not have evaluated its result last
        return curve

    def run_colours(self, weight: float, steps: int) -> None:
        """Fits the colours as well, if the measured values are mixtures of pixels. Where pixels are
        measured individually, the prior's colours are better.

        Args:
            weight: how strongly colours follow brightness; see
                :func:`~aps_core.sampling.colour_fit.fitted_colours`.
            steps: maximum number of evaluations.

        Raises:
            SamplingDiverged: the loss is not finite.
        """
        objective = self.objective
        if not isinstance(objective, MeasurementLikelihood):
            return
        if objective.coverage(self.x_hat_BCHW) == "mixtures":
            b_BHW = brightness(self.x_hat_BCHW)
            self.colours_BCHW = fitted_colours(objective, b_BHW, self.colours_BCHW, weight, steps)
            self._loss(self.change_BL)

    def picture(self, y_BL: Tensor) -> Tensor:
        """Pictures (B, C, H, W) with brightness ``y`` and the current colours."""
        x_BCHW: Tensor = self.colours_BCHW + y_BL.unflatten(1, self.colours_BCHW.shape[2:])[:, None]
        return x_BCHW

    def _loss(self, change_BL: Tensor) -> Tensor:
        x_hat_BCHW = self.picture(self.mean_BL + change_BL * self.unit_BL)
        loss_B, self.misfit_B = self.objective(x_hat_BCHW)
        self.x_hat_BCHW = x_hat_BCHW.detach()
        moved_BHW = (change_BL * self.unit_BL).unflatten(1, x_hat_BCHW.shape[2:])
        square_BL = square_of_change(moved_BHW, self.area_weight).flatten(1)
        divergence_B = (self.weight_BL * square_BL / (2 * self.variance_BL)).sum(1)
        total: Tensor = (loss_B / self.temperature + divergence_B).sum()
        return total
