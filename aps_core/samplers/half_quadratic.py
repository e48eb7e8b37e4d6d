"""Half-quadratic splitting: in every round a fit to the measurement, then the prior removes noise.

    x = argmin  -log q(y | x) + w / (2 s^2) |x - z|^2,    z = the prior's mean of x with noise s

The noise s that a round takes x to have falls in equal ratios (Zhang et al. 2021, "Plug-and-Play
Image Restoration with Deep Denoiser Prior"), to a last level that depends on the measurement's
noise. With a weight w of 1/4, a fit's noise is at most s, whatever the operator; with half of that,
movements diverge. Fits (:mod:`aps_core.sampling.picture_fit`) are possible with any differentiable
operator, with missing or clipped values, and with noise that differs from value to value or is
coloured.

Where every pixel was measured by itself, the noise s is the same in all rounds. If it is white,
there is nothing to fit: every round sees the measurement in another view
(:mod:`aps_core.sampling.views`), and the mean of the answers counts.

Not in the paper. For priors that remove noise (:class:`aps_core.types.NoisePrior`); no token is an
anchor: they are decided together after the last round.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.numerics.likelihood import MeasurementLikelihood, Pixels
from aps_core.numerics.steepest_descent import steepest_step
from aps_core.samplers.base import Denoiser, SamplerSpec
from aps_core.sampling.problem import Problem, Step
from aps_core.sampling.views import view
from aps_core.types import NoisePrior, SamplerState

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.sampling.picture_fit import PictureFit
else:
    torch = lazy_import("torch")

HALF_LEVEL = 1 / 15
"""Half the distance between two levels of brightness; confidence: the chance of a smaller error."""
SPREAD = 0.5
"""Noise that makes samples differ."""
COLOURED = 0.4
"""Noise that the prior removes from pixels with coloured noise in every round, over its deviation,
in which rounding counts twice.
"""


class Known(NamedTuple):
    """What is known of a problem's picture in all rounds."""

    likelihood: MeasurementLikelihood
    """Accounts for coloured noise."""
    pixels: Pixels | None
    """If each was measured by itself."""
    fit: PictureFit
    grey_BCHW: Tensor
    """Grey pictures, for their size."""

    @property
    def complete(self) -> Pixels | None:
        """The pixels, if none is missing or clipped."""
        seen = self.pixels
        return seen if seen is not None and bool(seen.known_BCHW.all()) else None

    @property
    def alone(self) -> Pixels | None:
        """Complete pixels, if white noise is all that they need to lose."""
        seen = self.complete
        return seen if seen is not None and seen.white and seen.even else None


class HalfQuadratic(SamplerSpec):
    """Fits to the measurement in turn with a prior that removes less noise in every round."""

    type: Literal["half_quadratic"] = "half_quadratic"
    steps: int = Field(10, ge=1, le=128, description="Rounds T.")
    guidance_scale: float = Field(
        0.0, ge=0, le=20, description="Without effect: priors of noise take no prompt."
    )
    inner_steps: int = Field(12, ge=1, le=5000, description="Most corrections of a fit (M).")
    first_noise: float = Field(
        0.38, gt=0, le=1, description="Noise of the first round, on the [-1, 1] scale."
    )
    last_noise: float = Field(
        0.25,
        gt=0,
        le=2,
        description=(
            "Noise of the last round over the square root of the measurement's, both on the"
            " [-1, 1] scale; more is smoother."
        ),
    )
    prior_weight: float = Field(
        0.23,
        gt=0,
        le=100,
        description=(
            "How strongly fits are held back by the prior's picture (w); 1: as if its pixels erred"
            " by the round's noise, independently."
        ),
    )
    filling_steps: int = Field(
        150,
        ge=1,
        le=1000,
        description="Steps of the first estimate of missing or clipped pixels.",
    )
    spread: float | None = Field(
        None,
        ge=0,
        le=2,
        description=(
            "Noise added before the prior's answer in the rounds of the first half, over the"
            " round's. Default: 0 for one sample, 0.5 for several, so that they differ."
        ),
    )

    needs_denoiser: ClassVar[Denoiser | None] = "noise"
    beyond_borders: ClassVar[bool] = True
    decodes_tokens: ClassVar[bool] = False

    def init(self, problem: Problem, z_BL: Tensor) -> Known:
        """What was measured.

        Raises:
            InvalidSpec: the prior removes no noise, or nothing was measured.
        """
        from aps_core.sampling.first_estimate import grey_start
        from aps_core.sampling.picture_fit import PictureFit

        if not isinstance(problem.prior, NoisePrior):
            raise InvalidSpec(
                f"The sampler '{self.type}' needs a prior that removes noise; choose another"
                " sampler."
            )
        likelihood = problem.whitened
        if not isinstance(likelihood, MeasurementLikelihood):
            raise InvalidSpec(f"The sampler '{self.type}' needs a measurement.")
        grey_BCHW = grey_start(problem, len(z_BL))
        fit = PictureFit(likelihood, grey_BCHW)
        return Known(likelihood, likelihood.pixels(grey_BCHW), fit, grey_BCHW)

    def step(self, problem: Problem, memory: Known, state: SamplerState) -> Step:
        """Fits the prior's last picture to the measurement, then removes noise."""
        done, alone, z_BL = state.step, memory.alone, state.z_BL
        last_BCHW = state.carried["estimate"].float() if done else None
        level = self._level(memory, done)
        curve: list[float] = []
        if alone is not None:
            x_BCHW = alone.y_BCHW
        else:
            expected_BCHW = self._start(problem, memory) if last_BCHW is None else last_BCHW
            weight, watch = self.prior_weight / level**2, problem.watch(done, self.steps)
            x_BCHW, curve = memory.fit.run(expected_BCHW, weight, self.inner_steps, watch)
        if done < self.steps // 2 and (spread := self.for_samples(len(z_BL)).spread):
            noise_BCHW = torch.empty_like(x_BCHW).normal_(generator=problem.generator)
            x_BCHW, level = x_BCHW + spread * level * noise_BCHW, level * math.hypot(1, spread)
        seen = view(done, self.steps, turned=True)
        estimate_BCHW, deviation_BHW = problem.without_noise(x_BCHW, level, seen)
        if alone is not None and last_BCHW is not None:
            estimate_BCHW = last_BCHW.lerp(estimate_BCHW, 1 / (done + 1))
        estimate_BCHW = estimate_BCHW.clamp(-1, 1)
        misfit_B = problem.objective(estimate_BCHW)[1]
        if done + 1 == self.steps:
            z_BL = problem.prior.tokenizer.encode(estimate_BCHW)
        return Step(
            z_BL=z_BL,
            confidence_BL=torch.erf(HALF_LEVEL / (2**0.5 * deviation_BHW.flatten(1))),
            x_hat_BCHW=estimate_BCHW,
            misfit=float(misfit_B.mean()),
            loss_curve=curve,
            carried={"estimate": estimate_BCHW.half(), "deviation": deviation_BHW.half()},
        )

    def _level(self, known: Known, done: int) -> float:
        """Noise that the round takes pictures to have."""
        if (seen := known.complete) is not None:
            return seen.sigma if seen.white else COLOURED * seen.sigma
        last = self.last_noise * math.sqrt(known.likelihood.sigma)
        first = max(last, self.first_noise)
        share = done / (self.steps - 1) if self.steps > 1 else 1.0
        return first * math.pow(last / first, share)

    def _start(self, problem: Problem, known: Known) -> Tensor:
        """The measured pixels, in gaps what surrounds them; of mixtures, a step towards them."""
        from aps_core.sampling.first_estimate import classical_estimate

        if known.complete is not None:
            return known.complete.y_BCHW.clamp(-1, 1)
        if known.likelihood.coverage(known.grey_BCHW) == "mixtures":
            return steepest_step(known.likelihood, known.grey_BCHW)
        watch = problem.watch_beside(0, self.steps, 0, self.inner_steps)
        return classical_estimate(known.likelihood, known.grey_BCHW, self.filling_steps, 0.0, watch)

    def decoded(self, problem: Problem, state: SamplerState) -> Tensor:
        """The last estimate, without the rounding to codes."""
        return state.carried["estimate"].float()

    def deviation(self, state: SamplerState) -> Tensor:
        """What the prior expected in the last round."""
        return state.carried["deviation"].float()

    def for_samples(self, samples: int) -> Self:
        """Noise only distinguishes samples of one measurement.

        Raises:
            InvalidSpec: they would be equal.
        """
        if samples > 1 and self.steps == 1:
            raise InvalidSpec(
                "After a single round all samples are equal; take two rounds ('steps') or more."
            )
        if self.spread is not None:
            return self
        return self.model_copy(update={"spread": SPREAD if samples > 1 else 0.0})

    @property
    def decodes(self) -> int:
        """One per correction."""
        return self.inner_steps

    @classmethod
    def for_decodes(cls, decodes: int) -> dict[str, Any]:
        """One correction per decode."""
        return {"inner_steps": max(1, decodes)}

    @property
    def extra_passes(self) -> int:
        """The first estimate of missing or clipped pixels."""
        return self.filling_steps // 2
