"""Plug and play: the prior denoises a running estimate and predicts a distribution per pixel.

In every round, the prior predicts mean and variance of every pixel's brightness from the last
estimate (:class:`aps_core.types.DenoisingPrior`). The mean is fitted to the measurement as in lines
7-15 of Algorithm 1, with one number per pixel and the divergence from the prior as a penalty; see
:mod:`aps_core.sampling.brightness_fit`. The fitted picture is the next estimate. Colours are those
the prior predicts, optionally fitted as well (:mod:`aps_core.sampling.colour_fit`). The prior sees
the picture in another view in every round (:mod:`aps_core.sampling.views`).

If all pixels are measured individually, the result is the mean over all rounds; with white noise,
every round then starts from the first estimate. Missing and clipped pixels, and flat areas: see
:mod:`aps_core.imaging.known_pixels`.

This is half-quadratic splitting (Zhang et al. 2021, "Plug-and-Play Image Restoration with Deep
Denoiser Prior") with the prior's own variance of every pixel instead of one weight and one noise
level for all. All tokens are decided after the last round; none is an anchor. Not in the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.numerics.likelihood import Likelihood
from aps_core.samplers.base import Denoiser, SamplerSpec
from aps_core.sampling.problem import Problem, Step
from aps_core.sampling.views import view
from aps_core.types import DenoisingPrior, Objective, SamplerState

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.sampling.brightness_fit import BrightnessFit
    from aps_core.sampling.first_estimate import Measured
else:
    torch = lazy_import("torch")

HALF_LEVEL = 1 / 15
"""Half a level of brightness. Confidence is the probability of a smaller error."""
COLOUR_STEPS = 15
"""Maximum number of evaluations of the colour fit in every round."""
SPREAD = 0.5
"""Noise after rounds of the first half, which makes samples differ; later noise would remain."""
AREA_WEIGHT = 0.05
"""Share of the divergence of areas that counts; above 0 for the sake of unmeasured areas."""


class PlugAndPlay(SamplerSpec):
    """Improves a classical estimate in rounds: the prior corrects it, the measurement the prior."""

    type: Literal["plug_and_play"] = "plug_and_play"
    steps: int = Field(4, ge=1, le=128, description="Rounds T.")
    guidance_scale: float = Field(
        0.0,
        ge=0,
        le=20,
        description=(
            "How strongly the prompt is followed (classifier-free guidance g of (1+g) cond -"
            " g uncond), if the prior takes one and there is no measurement."
        ),
    )
    inner_steps: int = Field(
        25, ge=1, le=5000, description="Most corrections in every round (L-BFGS steps M)."
    )
    prior_weight: float = Field(
        1.0,
        ge=0,
        le=100,
        description=(
            "How strongly corrections are held back by what the prior expects (weight of the KL"
            " divergence from it, in nats, beside the likelihood); 1 is the evidence lower bound."
        ),
    )
    area_weight: float = Field(
        AREA_WEIGHT,
        ge=0,
        le=1,
        description=(
            "Share of the divergence of areas' brightness (8 pixels) that counts. 1: pixels are"
            " held back independently; less: the measurement decides how bright an area is."
        ),
    )
    first_steps: int = Field(
        150,
        ge=1,
        le=1000,
        description=(
            "Steps of the first estimate of a blurred or reduced picture; long blurs of detailed"
            " pictures take more."
        ),
    )
    filling_steps: int = Field(
        150,
        ge=1,
        le=1000,
        description=(
            "Steps of the first estimate of missing or clipped pixels. With fewer, longer ones,"
            " clipped values end farther beyond the limit."
        ),
    )
    clipped_smoothness: float = Field(
        0.0,
        ge=0,
        le=100,
        description=(
            "Weight of the total variation of the first estimate of clipped pictures. 0: slopes"
            " continue into clipped areas, which become nearly black or white."
        ),
    )
    clipped_reach: int | None = Field(
        None,
        ge=0,
        le=64,
        description=(
            "Distance in pixels from the nearest measured value up to which the prior fills"
            " clipped areas; farther inside, the first estimate counts. Default: everywhere."
        ),
    )
    colour_weight: float = Field(
        0.0,
        ge=0,
        le=100,
        description=(
            "How strongly colours follow brightness, when they are fitted to a measurement that is"
            " blurred or reduced (nats per unit of deviation). 0: they are what the prior expects."
        ),
    )
    turned: bool = Field(
        False,
        description=(
            "Whether the prior sees the picture turned, another way in every round. Errors average"
            " out; for content that may lie any way, unlike type."
        ),
    )
    classical_share: float = Field(
        0.0,
        ge=0,
        lt=1,
        description=(
            "Share of the first estimate in the result. Where the prior hardly beats it, their mean"
            " is ahead of it more surely, and in SSIM as well, for a little less PSNR."
        ),
    )
    spread: float | None = Field(
        None,
        ge=0,
        le=2,
        description=(
            "Noise added to estimates after each round of the first half, in standard deviations of"
            " the prior's prediction. Default: 0 for one sample, 0.5 for several, so that they"
            " differ."
        ),
    )

    needs_denoiser: ClassVar[Denoiser | None] = "estimates"
    beyond_borders: ClassVar[bool] = True
    decodes_tokens: ClassVar[bool] = False

    def init(self, problem: Problem, z_BL: Tensor) -> Measured:
        """Analyses the measurement.

        Raises:
            InvalidSpec: the prior is not a denoiser.
        """
        from aps_core.sampling.first_estimate import Measured

        if not isinstance(problem.prior, DenoisingPrior):
            raise InvalidSpec(
                "The sampler 'plug_and_play' needs a prior that is also a denoiser; choose another"
                " sampler."
            )
        return Measured.of(problem, len(z_BL))

    def step(self, problem: Problem, memory: Measured, state: SamplerState) -> Step:
        """Denoises the estimate, then fits it to the measurement."""
        first_BCHW, estimate_BCHW = self._start(problem, memory, state)
        fit, curve = self._fitted(problem, memory.whitened, estimate_BCHW, state.step)
        x_hat_BCHW = next_BCHW = fit.x_hat_BCHW
        deviation_BL = fit.variance_BL.sqrt()
        carried = {"first": first_BCHW, "deviation": deviation_BL.unflatten(1, problem.grid)}
        if memory.pixels is not None and not memory.pixels.missing:
            carried["mean"] = x_hat_BCHW = self._averaged(state, x_hat_BCHW)
            next_BCHW = first_BCHW if memory.pixels.white else next_BCHW
        z_BL = state.z_BL
        if state.step + 1 == self.steps:
            if isinstance(problem.objective, Likelihood):
                x_hat_BCHW = self._finished(memory, x_hat_BCHW, first_BCHW)
            next_BCHW = x_hat_BCHW.clamp(-1, 1)
            z_BL = problem.prior.tokenizer.encode(next_BCHW)
        else:
            next_BCHW = self._spread(problem, next_BCHW.clamp(-1, 1), deviation_BL, state.step)
        carried["estimate"] = next_BCHW
        return Step(
            z_BL=z_BL,
            confidence_BL=torch.erf(HALF_LEVEL / (2**0.5 * deviation_BL)),
            x_hat_BCHW=x_hat_BCHW,
            misfit=float(fit.misfit_B.mean()),
            loss_curve=curve,
            carried={name: tensor.half() for name, tensor in carried.items()},
        )

    def _start(
        self, problem: Problem, measured: Measured, state: SamplerState
    ) -> tuple[Tensor, Tensor]:
        """The first estimate, and the estimate that the round starts from."""
        from aps_core.sampling.first_estimate import classical_estimate, grey_start, prior_estimate

        if state.step:
            return state.carried["first"].float(), state.carried["estimate"].float()
        if isinstance(measured.white, Likelihood):
            first_BCHW = classical_estimate(
                measured.white,
                grey_start(problem, len(state.z_BL)),
                self.first_steps,
                self.clipped_smoothness,
                problem.watch_beside(0, self.steps, 0, self.inner_steps),
                filling_steps=self.filling_steps,
            )
        else:
            first_BCHW = prior_estimate(problem, state.z_BL, self.guidance_scale)
        return first_BCHW, first_BCHW

    def _fitted(
        self, problem: Problem, objective: Objective, estimate_BCHW: Tensor, done: int
    ) -> tuple[BrightnessFit, list[float]]:
        """The prior's prediction, fitted to the measurement, and the loss of every evaluation."""
        from aps_core.sampling.brightness_fit import BrightnessFit

        seen = view(done, self.steps, self.turned)
        denoised = problem.denoised(estimate_BCHW, objective, seen)
        fit = BrightnessFit(objective, denoised, self.prior_weight, self.area_weight)
        curve = fit.run(self.inner_steps, problem.watch(done, self.steps))
        if self.colour_weight:
            fit.run_colours(self.colour_weight, COLOUR_STEPS)
        return fit, curve

    def _averaged(self, state: SamplerState, x_hat_BCHW: Tensor) -> Tensor:
        """Mean of the fitted pictures of all rounds so far."""
        if not state.step:
            return x_hat_BCHW
        return state.carried["mean"].float().lerp(x_hat_BCHW, 1 / (state.step + 1))

    def _finished(self, measured: Measured, x_hat_BCHW: Tensor, first_BCHW: Tensor) -> Tensor:
        """The last estimate, with the first one where that is more certain."""
        x_hat_BCHW = measured.result(x_hat_BCHW, first_BCHW, self.clipped_reach)
        return x_hat_BCHW.lerp(first_BCHW, self.classical_share)

    def _spread(
        self, problem: Problem, estimate_BCHW: Tensor, deviation_BL: Tensor, done: int
    ) -> Tensor:
        """The next estimate, with the noise that makes samples differ."""
        spread = self.for_samples(len(estimate_BCHW)).spread
        if not spread or done >= self.steps // 2:
            return estimate_BCHW
        drawn_BL = torch.empty_like(deviation_BL).normal_(generator=problem.generator)
        noise_B1HW = (spread * deviation_BL * drawn_BL).unflatten(1, problem.grid)[:, None]
        noisy_BCHW: Tensor = (estimate_BCHW + noise_B1HW).clamp(-1, 1)
        return noisy_BCHW

    def decoded(self, problem: Problem, state: SamplerState) -> Tensor:
        """The last estimate, without the rounding to codes."""
        return state.carried["estimate"].float()

    def deviation(self, state: SamplerState) -> Tensor:
        """Standard deviation that the prior predicted in the last round."""
        return state.carried["deviation"].float()

    def for_samples(self, samples: int) -> Self:
        """Uses noise only to make samples of one measurement differ.

        Raises:
            InvalidSpec: all samples would be equal.
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
        """One per correction, including those of colours."""
        return self.inner_steps + COLOUR_STEPS * bool(self.colour_weight)

    @classmethod
    def for_decodes(cls, decodes: int) -> dict[str, Any]:
        """One correction per decode."""
        return {"inner_steps": max(1, decodes)}

    @property
    def extra_passes(self) -> int:
        """First estimate and verdict, as measured with a blur on a CPU."""
        return 10 + max(self.first_steps, self.filling_steps) // 2
