"""Text to image: samples the prior without a measurement."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.imaging.provenance import TRAINED
from aps_core.priors import ImagePriorSpec
from aps_core.samplers.prior import PriorConfig
from aps_core.tasks.base import Inputs, RunContext, Size, TaskSpec
from aps_core.tasks.progress import PictureProgress
from aps_core.tasks.results import PictureResult
from aps_core.types import StepInfo

if TYPE_CHECKING:
    import torch

else:
    torch = lazy_import("torch")


class GenerateSpec(TaskSpec):
    """Generate pictures from a prompt by sampling the prior, without a measurement."""

    type: Literal["generate"] = "generate"
    prompt: str = Field(
        "",
        max_length=500,
        description="Text that describes the picture. If empty, generation is unconditional.",
    )
    width: int | None = Field(
        None, ge=16, le=4096, description="Width in pixels. Default: the prior's native size."
    )
    height: int | None = Field(
        None, ge=16, le=4096, description="Height in pixels. Default: the prior's native size."
    )
    num_samples: int = Field(1, ge=1, le=16, description="Pictures to draw.")
    sampler: PriorConfig = Field(default_factory=PriorConfig, description="Sampler settings.")

    def check(self, image: Size | None, mask: Size | None, has_alpha: bool) -> None:
        """Checks the prompt; pictures are not accepted."""
        self._prior().check_prompt(self.prompt)
        if image is not None or mask is not None:
            raise InvalidSpec("The task 'generate' takes no picture; leave 'image' and 'mask' out.")

    def output_size(self, image: Size | None) -> Size:
        """Size of each picture."""
        height, width = self._prior().native_size
        return self.width or width, self.height or height

    def work(self, image: Size | None) -> tuple[int, int]:
        """An upper bound: the measured unit is an inner step, which costs more than a reverse step
        of this task.
        """
        (width, height), stride = self.output_size(None), self._prior().stride
        return -(-width // stride) * -(-height // stride) * self.num_samples, self.sampler.steps

    def resolved(self) -> Self:
        """Fills in the sampler's settings and the picture's size."""
        width, height = self.output_size(None)
        sampler = self.sampler.with_recommended(self._prior().recommended_for(PriorConfig))
        return self.model_copy(update={"sampler": sampler, "width": width, "height": height})

    def run(self, inputs: Inputs, context: RunContext) -> PictureResult:
        """MaskGIT sampling as in MMaDA."""
        from aps_core.runtime.engine import ImageEngine
        from aps_core.sampling import driver

        engine, resume = context.engine, context.resume
        assert isinstance(engine, ImageEngine)  # ``resolved`` rejects other priors
        started = time.perf_counter()
        width, height = self.output_size(None)
        grid = engine.grid(height, width)
        timing = {"prior": 0.0, "sampling": 0.0}

        def hook(info: StepInfo) -> bool | None:
            timing["prior"] += info.prior_seconds
            timing["sampling"] += info.seconds
            if context.on_step is None:
                return None
            picture = info.x_hat_BCHW[..., :height, :width]
            return context.on_step(
                PictureProgress(
                    info.state,
                    info.total,
                    info.seconds,
                    info.prior_seconds,
                    context.fingerprint,
                    info,
                    picture,
                    grid,
                    0.0,
                )
            )

        sample = driver.sample(
            engine.prior,
            None,
            self.sampler,
            grid=grid,
            generator=torch.Generator(engine.device).manual_seed(self.seed),
            batch=self.num_samples,
            condition=self.prompt,
            on_step=hook,
            on_inner=context.on_inner,
            resume=resume,
        )
        return PictureResult(
            spec=self,
            pictures_BCHW=sample.x_BCHW[..., :height, :width].clamp(-1, 1),
            codes_BL=sample.z_BL,
            seconds={**timing, "total": time.perf_counter() - started},
            fingerprint=context.fingerprint,
            resumed_from_step=resume.step if resume else None,
            source_type=TRAINED,
        )

    def _prior(self) -> ImagePriorSpec:
        return self._prior_of(ImagePriorSpec)  # type: ignore[type-abstract]
