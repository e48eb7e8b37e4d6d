"""Runs the sampler of a picture task and builds its progress reports and result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

from aps_core._lazy import lazy_import
from aps_core.tasks.base import RunContext
from aps_core.tasks.pictures import PictureTaskSpec
from aps_core.tasks.progress import PictureProgress
from aps_core.tasks.results import PictureResult
from aps_core.types import InnerInfo, Objective, StepInfo
from aps_core.verdict.fit import STEPS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.types import Grid
else:
    torch = lazy_import("torch")


def judging_hook(context: RunContext, last: int) -> Callable[[int], bool | None] | None:
    """Asks the inner hook whether to go on while the result is judged, after step ``last``."""
    hook = context.on_inner
    return hook and (
        lambda step: hook(
            InnerInfo(step=last, total=last, iteration=step, inner_steps=STEPS, loss=0.0)
        )
    )


class StepNumbers(NamedTuple):
    """Measurements of a finished reverse step."""

    misfit: float
    inner_steps: int
    seconds: float
    prior_seconds: float

    @classmethod
    def of(cls, info: StepInfo) -> Self:
        """Those of a step's report."""
        return cls(info.misfit, len(info.loss_curve), info.seconds, info.prior_seconds)


@dataclass
class Run:
    """One run of a picture task."""

    context: RunContext
    started: float = field(default_factory=time.perf_counter)

    def sample(
        self,
        spec: PictureTaskSpec,
        objective: Objective | None,
        size: tuple[int, int],
        z_BL: Tensor | None = None,
        finish: Callable[[Tensor], Tensor] | None = None,
        beyond: int = 0,
    ) -> PictureResult:
        """Draws the task's samples.

        Args:
            spec: resolved spec with sampler, seed, prompt and number of samples.
            objective: loss of a decoded picture; None samples without a measurement.
            size: height and width of the result in pixels.
            z_BL: decided tokens; see :func:`aps_core.sampling.driver.sample`.
            finish: maps decoded pictures (B, 3, H, W), cropped to ``size``, to the pictures that
                are shown and returned.
            beyond: pixels that are sampled beyond each border of the result.
        """
        from aps_core.engines.engine import ImageEngine
        from aps_core.sampling import driver

        context, engine = self.context, self.context.engine
        watched = context.on_inner
        assert isinstance(engine, ImageEngine)  # ``resolved`` rejects other priors
        height, width = size
        grid = engine.grid(height + 2 * beyond, width + 2 * beyond)
        hidden = beyond // engine.stride
        rows, columns = slice(beyond, beyond + height), slice(beyond, beyond + width)
        floor = objective.noise_floor if objective is not None else 0.0
        steps: list[StepNumbers] = []

        def shown(x_BCHW: Tensor) -> Tensor:
            picture_BCHW = x_BCHW[..., rows, columns]
            return finish(picture_BCHW) if finish is not None else picture_BCHW

        sample = driver.sample(
            engine.prior,
            objective,
            spec.sampler,
            grid=grid,
            generator=torch.Generator(engine.device).manual_seed(spec.seed),
            batch=spec.num_samples,
            condition=spec.prompt,
            on_step=lambda info: self._report(info, steps, grid, hidden, floor, shown),
            on_inner=watched and (lambda info: watched(info.showing(shown))),
            resume=context.resume,
            z_BL=z_BL,
        )
        deviation_BHW = sample.deviation_BHW
        return PictureResult(
            spec=spec,
            pictures_BCHW=shown(sample.x_BCHW).clamp(-1, 1),
            deviation_BHW=None if deviation_BHW is None else deviation_BHW[:, rows, columns],
            codes_BL=sample.z_BL,
            misfit_B=sample.misfit_B.tolist() if objective is not None else [],
            noise_floor=floor,
            misfit_curve=[step.misfit for step in steps] if objective is not None else [],
            inner_steps=[step.inner_steps for step in steps],
            seconds={
                "prior": sum(step.prior_seconds for step in steps),
                "sampling": sum(step.seconds for step in steps),
                "total": time.perf_counter() - self.started,
            },
            fingerprint=context.fingerprint,
            resumed_from_step=context.resume.step if context.resume else None,
        )

    def _report(
        self,
        info: StepInfo,
        steps: list[StepNumbers],
        grid: Grid,
        hidden: int,
        noise_floor: float,
        shown: Callable[[Tensor], Tensor],
    ) -> bool | None:
        steps.append(StepNumbers.of(info))
        if self.context.on_step is None:
            return None
        picture_BCHW = shown(info.x_hat_BCHW)
        return self.context.on_step(
            PictureProgress(
                state=info.state,
                total=info.total,
                seconds=info.seconds,
                prior_seconds=info.prior_seconds,
                fingerprint=self.context.fingerprint,
                found=self.context.found,
                info=info,
                picture_BCHW=picture_BCHW,
                grid=grid,
                hidden=hidden,
                noise_floor=noise_floor,
            )
        )
