"""Plug and play: the prior as a denoiser of the running estimate, with a distribution per pixel.

Every round gives the prior the last estimate, and takes its answer for the distribution of every
pixel's brightness. The expected picture is then fitted to the measurement, as in APS (lines 7-15 of
Algorithm 1), but with one number a pixel, and held back by the divergence from the prior
(:mod:`aps_core.sampling.brightness_fit`):

    min_b  -log q(y | b + colours) + w sum_i f_i KL(b_i || p_i)

with factors f by which the prior says how firmly every pixel i holds. The fitted picture is the
next estimate; its colours are the estimate's, as the prior corrects them, and may be fitted as well
(:mod:`aps_core.sampling.colour_fit`). Every round shows the prior the picture in another view
(:mod:`aps_core.sampling.views`). Where each pixel was measured by itself, and none is missing, the
mean of all answers counts; with white noise, every round then starts from the first estimate.
Beside missing or clipped pixels, the others finally only lose their noise. In holes the first
estimate counts, and inside of clipped areas it may; it does where it is of one colour
(:mod:`aps_core.imaging.known_pixels`).

This is half-quadratic splitting (Zhang et al. 2021, "Plug-and-Play Image Restoration with Deep
Denoiser Prior"), with the prior's own uncertainty of every pixel in the place of one weight and one
noise level for all. No token is an anchor: they are decided together after the last round. Not in
the paper. For priors that are denoisers (:class:`aps_core.types.DenoisingPrior`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field

from aps_core.errors import InvalidSpec
from aps_core.likelihood import Likelihood, MeasurementLikelihood, Pixels
from aps_core.samplers.base import Denoiser, SamplerSpec, Step
from aps_core.samplers.first_estimate import Measured, classical_estimate, grey_start
from aps_core.types import DenoisingPrior

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.sampling.brightness_fit import BrightnessFit
    from aps_core.sampling.driver import Problem
    from aps_core.types import Objective, SamplerState

HALF_LEVEL = 1 / 15
"""Half the distance between two levels of brightness; confidence: the chance of a smaller error."""
COLOUR_STEPS = 15
"""Corrections of colours in every round."""
SPREAD = 0.5
"""Noise after the rounds of the first half, which makes samples differ; later, some would stay."""
AREA_WEIGHT = 0.05
"""Share of the divergence of areas that counts; it holds them where nothing was measured."""


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
        """What was measured.

        Raises:
            InvalidSpec: the prior is no denoiser.
        """
        if not isinstance(problem.prior, DenoisingPrior):
            raise InvalidSpec(
                "The sampler 'plug_and_play' needs a prior that is also a denoiser; choose another"
                " sampler."
            )
        return Measured.of(problem, len(z_BL))

    def step(self, problem: Problem, memory: Measured, state: SamplerState) -> Step:
        """Denoises the estimate, then fits it to the measurement."""
        import torch

        from aps_core.sampling.brightness_fit import BrightnessFit
        from aps_core.sampling.views import view

        assert isinstance(problem.prior, DenoisingPrior)
        z_BL, done, pixels = state.z_BL, state.step, memory.pixels
        first_BCHW = state.carried["first"].float() if done else self._first(problem, memory, z_BL)
        estimate_BCHW = state.carried["estimate"].float() if done else first_BCHW
        seen = view(done, self.steps, self.turned)
        denoised = problem.denoised(estimate_BCHW, memory.whitened, seen)
        fit = BrightnessFit(memory.whitened, denoised, self.prior_weight, self.area_weight)
        curve = fit.run(self.inner_steps, problem.watch(done, self.steps))
        self._fit_colours(memory.whitened, fit)
        x_hat_BCHW, next_BCHW = fit.x_hat_BCHW, fit.x_hat_BCHW
        carried = {"first": first_BCHW.half()}
        if pixels is not None and not pixels.missing:
            if done:
                x_hat_BCHW = state.carried["mean"].float().lerp(x_hat_BCHW, 1 / (done + 1))
            carried["mean"] = x_hat_BCHW.half()
            next_BCHW = first_BCHW if pixels.white else next_BCHW
        if done + 1 == self.steps:
            if isinstance(problem.objective, Likelihood):
                x_hat_BCHW = self._result(pixels, x_hat_BCHW, first_BCHW)
            next_BCHW = x_hat_BCHW
        estimate_BCHW = next_BCHW.clamp(-1, 1)
        deviation_BL = denoised.variance_BL.sqrt()
        if done + 1 == self.steps:
            z_BL = problem.prior.tokenizer.encode(estimate_BCHW)
        elif done < self.steps // 2 and (spread := self.for_samples(len(z_BL)).spread):
            drawn_BL = torch.empty_like(deviation_BL).normal_(generator=problem.generator)
            noise_B1HW = (spread * deviation_BL * drawn_BL).unflatten(1, problem.grid)[:, None]
            estimate_BCHW = (estimate_BCHW + noise_B1HW).clamp(-1, 1)
        carried["estimate"] = estimate_BCHW.half()
        carried["deviation"] = deviation_BL.unflatten(1, problem.grid).half()
        return Step(
            z_BL=z_BL,
            confidence_BL=torch.erf(HALF_LEVEL / (2**0.5 * deviation_BL)),
            x_hat_BCHW=x_hat_BCHW,
            misfit=float(fit.misfit_B.mean()),
            loss_curve=curve,
            carried=carried,
        )

    def _result(self, pixels: Pixels | None, x_hat_BCHW: Tensor, first_BCHW: Tensor) -> Tensor:
        """The last estimate; but the first one where it is surer, and what was measured."""
        from aps_core.imaging.known_pixels import flat_share, inside_clipped, with_known

        x_hat_BCHW = x_hat_BCHW.lerp(first_BCHW, flat_share(first_BCHW))
        if pixels is not None:
            x_hat_BCHW = with_known(pixels, x_hat_BCHW, first_BCHW)
            if self.clipped_reach is not None and not pixels.missing:
                x_hat_BCHW = inside_clipped(pixels, x_hat_BCHW, first_BCHW, self.clipped_reach)
        return x_hat_BCHW.lerp(first_BCHW, self.classical_share)

    def _first(self, problem: Problem, measured: Measured, z_BL: Tensor) -> Tensor:
        """The first estimate, which takes noise for white; without a likelihood, what the prior
        expects.
        """
        if isinstance(measured.white, Likelihood):
            watch = problem.watch_beside(0, self.steps, 0, self.inner_steps)
            return classical_estimate(
                measured.white,
                grey_start(problem, len(z_BL)),
                self.first_steps,
                self.clipped_smoothness,
                watch,
                filling_steps=self.filling_steps,
            )
        tokenizer = problem.prior.tokenizer
        p_BLK = problem.logits(z_BL, 1.0, self.guidance_scale).softmax(-1)
        return tokenizer.decode(p_BLK @ tokenizer.codebook_KD, problem.grid).clamp(-1, 1)

    def _fit_colours(self, objective: Objective, fit: BrightnessFit) -> None:
        """If values of the measurement are mixtures of pixels. Where pixels are measured by
        themselves, the prior's colours are better.
        """
        from aps_core.sampling.colour_fit import fitted_colours

        if not self.colour_weight or not isinstance(objective, MeasurementLikelihood):
            return
        if objective.coverage(fit.x_hat_BCHW) == "mixtures":
            seen = fit.brightness_BHW, fit.colours_BCHW
            fit.recolour(fitted_colours(objective, *seen, self.colour_weight, COLOUR_STEPS))

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
        """One per correction, of colours as well."""
        return self.inner_steps + COLOUR_STEPS * bool(self.colour_weight)

    @classmethod
    def for_decodes(cls, decodes: int) -> dict[str, Any]:
        """One correction per decode."""
        return {"inner_steps": max(1, decodes)}

    @property
    def extra_passes(self) -> int:
        """The first estimate and the verdict, as measured with a blur on a CPU."""
        return 10 + max(self.first_steps, self.filling_steps) // 2
