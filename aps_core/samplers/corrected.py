"""Settings shared by samplers that begin with a total-variation estimate and end with a correction
of the picture by the measurement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from aps_core.samplers.base import SamplerSpec
from aps_core.types import Likelihood, MeasurementLikelihood

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.sampling.driver import Problem
    from aps_core.sampling.inner_watch import InnerWatch


class CorrectedSampler(SamplerSpec):
    """Reproduces measured details that the tokenizer's codes cannot represent. Its Adam steps in
    every round are ``inner_steps``.
    """

    if TYPE_CHECKING:
        inner_steps: int  # a field of every subclass, in its own place among the fields

    correction: float = Field(
        0.0,
        ge=0,
        le=1000,
        description=(
            "Final correction of the picture by the measurement, which reproduces measured details"
            " that the tokenizer's codes cannot represent: weight of the total variation of the"
            " change. Higher values change less; 0 makes no correction."
        ),
    )
    smoothness: float = Field(
        0.0,
        ge=0,
        le=1000,
        description=(
            "How smooth the corrected picture becomes (weight of its own total variation)."
        ),
    )
    curvature: float = Field(
        0.0,
        ge=0,
        le=1000,
        description=(
            "How much the final correction continues slopes through missing or clipped pixels,"
            " which the total variation alone fills with steps (weight of the curvature of the"
            " picture and of its change). Without effect if there are none."
        ),
    )
    denoising: float | None = Field(
        None,
        ge=0,
        le=10,
        description=(
            "Smoothness of pictures with nothing but noise, times the noise's standard deviation."
            " If left out, that of all others (`smoothness`)."
        ),
    )

    def crude(
        self, problem: Problem, samples: int, watch: InnerWatch, filling: float = 0.0
    ) -> Tensor | None:
        """The total-variation estimate (B, 3, H, W); None without a likelihood. Where pixels may be
        missing or clipped, a weight of the curvature above 0, ``filling``, replaces that of the
        total variation.
        """
        from aps_core.imaging.total_variation import WEIGHT, total_variation_estimate

        if not isinstance(problem.objective, Likelihood):
            return None
        (rows, columns), tokenizer = problem.grid, problem.prior.tokenizer
        shape = (samples, 3, rows * tokenizer.stride, columns * tokenizer.stride)
        nothing_BCHW = tokenizer.codebook_KD.new_zeros(shape).float()
        weight, curvature_weight = WEIGHT, 0.0
        if (
            filling
            and isinstance(problem.objective, MeasurementLikelihood)
            and problem.objective.coverage(nothing_BCHW) == "gaps"
        ):
            weight, curvature_weight = 0.0, filling
        return total_variation_estimate(
            problem.objective,
            nothing_BCHW,
            weight=weight,
            curvature_weight=curvature_weight,
            watch=watch,
        )

    def finish(self, problem: Problem, x_BCHW: Tensor) -> Tensor:
        """The pictures of the last step, corrected by the measurement."""
        inner = self.inner_steps
        watch = problem.watch_beside(self.steps - 1, self.steps, inner, inner)
        return self.corrected(problem, x_BCHW, watch)

    def corrected(self, problem: Problem, x_BCHW: Tensor, watch: InnerWatch) -> Tensor:
        """The pictures, corrected by the measurement if its noise is known."""
        from aps_core.imaging.total_variation import total_variation_estimate

        objective = problem.objective
        if not self.correction or not isinstance(objective, MeasurementLikelihood):
            return x_BCHW
        coverage, smoothness = objective.coverage(x_BCHW), self.smoothness
        if coverage == "pixels" and self.denoising is not None:
            # thresholds for noise are proportional to sigma (Donoho & Johnstone 1994), and the
            # likelihood is divided by sigma^2
            smoothness = self.denoising / objective.sigma
        return total_variation_estimate(
            objective,
            x_BCHW,
            weight=smoothness,
            correction_weight=self.correction,
            curvature_weight=self.curvature if coverage == "gaps" else 0.0,
            steps=100,
            learning_rate=0.03,
            watch=watch,
        )

    @property
    def decodes(self) -> int:
        """One per Adam step."""
        return self.inner_steps

    @classmethod
    def for_decodes(cls, decodes: int) -> dict[str, Any]:
        """One Adam step per decode."""
        return {"inner_steps": decodes}
