"""Base classes of tasks whose result is a picture."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, StringConstraints

from aps_core.imaging.provenance import COMPOSITE
from aps_core.losses import LossSpec
from aps_core.losses.measurement import MeasurementLoss
from aps_core.priors import ImagePriorSpec
from aps_core.priors.base import PRESETS, Preset
from aps_core.registry import AnyOf
from aps_core.restoration.drawing import draw
from aps_core.restoration.settings import caveats, complete_loss, complete_sampler
from aps_core.samplers import SamplerSpec
from aps_core.samplers.aps import APSConfig
from aps_core.tasks.base import RunContext, TaskSpec
from aps_core.tasks.results import PictureResult
from aps_core.types import Objective, Size

if TYPE_CHECKING:
    from torch import Tensor

Prompt = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
"""A prompt that must not be empty."""


class PictureTaskSpec(TaskSpec):
    """A task whose result is a picture."""

    prompt: str = Field("", max_length=500, description="Optional text that describes the picture.")
    num_samples: int = Field(1, ge=1, le=16, description="Samples to draw.")
    preset: Preset = Field(
        "balanced",
        description=(
            "Amount of work: 'fast' and 'best' take fewer or more steps than the prior's"
            " recommendation, 'balanced'. Applies to sampler settings that are left out."
        ),
    )
    sampler: Annotated[SamplerSpec, AnyOf(SamplerSpec, default="aps")] = Field(
        default_factory=APSConfig,
        description=(
            "Sampler and its settings ('aps' if no type is given); omitted fields follow the"
            " prior's recommendation. Without a sampler, a restoration uses the one that the prior"
            " recommends."
        ),
    )

    pictures: ClassVar[Mapping[str, bool]] = {"image": True, "mask": False}

    def prior_spec(self) -> ImagePriorSpec:
        """Spec of the prior this task samples from.

        Raises:
            InvalidSpec: no image prior has that name.
        """
        return self._prior_of(ImagePriorSpec)  # type: ignore[type-abstract]

    def settings(self) -> SamplerSpec:
        """Sampler settings with recommendations filled in; the task's override the prior's.

        Raises:
            InvalidSpec: the sampler does not work with the prior.
        """
        sampler: SamplerSpec = (
            self.sampler
            if "sampler" in self.model_fields_set
            else SamplerSpec.named(self.default_sampler()).model_validate({})
        )
        return complete_sampler(self.prior_spec(), sampler, self.preset, self.own_settings())

    def default_sampler(self) -> str:
        """Type of the sampler of a job that names none."""
        sampler: SamplerSpec = self.sampler
        return sampler.type

    def own_settings(self) -> dict[str, Any]:
        """Fields of :class:`aps_core.samplers.aps.APSConfig` that this task recommends, overriding
        the prior's. Other samplers derive their settings from them.
        """
        return {}

    def resolved(self) -> Self:
        """Fills in the sampler's settings.

        Raises:
            InvalidSpec: the sampler does not work with the prior, or all samples would be equal.
        """
        sampler = self.settings()
        sampler.for_samples(self.num_samples)  # here to raise; the sampler itself asks later
        return self.model_copy(update={"sampler": sampler})

    def by_preset(self) -> dict[Preset, Self]:
        """This task with each preset; all alike if the sampler's steps are set."""
        return {name: self.model_copy(update={"preset": name}) for name in PRESETS}

    @abstractmethod
    def output_size(self, image: Size | None) -> Size:
        """Always a size, never None."""

    def sampled_size(self, image: Size | None) -> Size:
        """Always a size; equals :meth:`output_size` by default."""
        return self.output_size(image)

    def computed_size(self, image: Size | None) -> Size:
        """:meth:`sampled_size`, and what is computed beside it and cut off."""
        return self.sampled_size(image)

    def work(self, image: Size | None) -> tuple[int, int]:
        """The measured unit is one inner step at the prior's native size."""
        width, height = self.computed_size(image)
        prior, sampler = self.prior_spec(), self.settings()
        tokens = -(-width // prior.stride) * -(-height // prior.stride)
        passes = sampler.steps * (sampler.decodes + prior.passes_per_step) + sampler.extra_passes
        growth = prior.attention_share * (tokens / prior.native_tokens - 1)
        return tokens * self.num_samples, math.ceil(passes * (1 + growth))

    def drawn(
        self,
        objective: Objective | None,
        size: Size,
        context: RunContext,
        *,
        z_BL: Tensor | None = None,
        finish: Callable[[Tensor], Tensor] | None = None,
        source_type: str = COMPOSITE,
    ) -> PictureResult:
        """Draws the task's samples; arguments as of :func:`aps_core.restoration.drawing.draw`."""
        from aps_core.engines.engine import ImageEngine

        engine = context.engine
        assert isinstance(engine, ImageEngine)  # ``resolved`` rejects other priors
        made = draw(
            engine,
            objective,
            self.sampler,
            size,
            context.hooks(engine.grid(size[1], size[0])),
            seed=self.seed,
            batch=self.num_samples,
            prompt=self.prompt,
            z_BL=z_BL,
            finish=finish,
        )
        about = {"spec": self, "fingerprint": context.fingerprint, "source_type": source_type}
        return PictureResult.of(made, **about)


class MeasuredTaskSpec(PictureTaskSpec):
    """A picture task whose samples must agree with a measurement."""

    loss: Annotated[LossSpec, AnyOf(LossSpec, default="measurement")] = Field(
        default_factory=MeasurementLoss,
        description=(
            "Loss and its settings ('measurement' if no type is given); omitted fields follow the"
            " prior's recommendation."
        ),
    )

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Weights needed by the loss."""
        loss: LossSpec = self.resolved().loss
        return loss.checkpoints

    def resolved(self) -> Self:
        """Fills in the settings of sampler and loss."""
        loss = complete_loss(self.prior_spec(), self.loss)
        return super().resolved().model_copy(update={"loss": loss})

    def settled(self) -> Self:
        """Fixes the loss's machine-dependent choices."""
        loss: LossSpec = self.loss
        return self.model_copy(update={"loss": loss.settled()})

    def caveats(self) -> list[str]:
        """Notes of the loss, and of a sampler that does not suit the prior."""
        return caveats(self.prior_spec(), self.settings(), self.loss)
