"""Draws samples of a picture on a grid of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from aps_core._lazy import lazy_import
from aps_core.restoration.result import Pictures
from aps_core.types import InnerHook, InnerInfo, Objective, SamplerState, StepHook, StepInfo
from aps_core.verdict.fit import STEPS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.engines.engine import ImageEngine
    from aps_core.samplers import SamplerSpec
    from aps_core.sampling import driver
else:
    torch, driver = lazy_import("torch"), lazy_import("aps_core.sampling.driver")


@dataclass(frozen=True)
class Hooks:
    """Callbacks of a run, and where it starts."""

    on_step: StepHook | None = None
    """Called after every reverse step, or after every tile; returning False cancels."""
    on_inner: InnerHook | None = None
    """Called between inner iterations; returning False cancels."""
    resume: SamplerState | None = None
    """State after a finished step, or tile, of the same run."""

    def while_judging(self, last: int) -> Callable[[int], bool | None] | None:
        """Asks the inner hook whether to go on while the result is judged, after step ``last``."""
        hook = self.on_inner
        return hook and (
            lambda done: hook(
                InnerInfo(step=last, total=last, iteration=done, inner_steps=STEPS, loss=0.0)
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


def seconds_of(steps: Iterable[StepNumbers]) -> dict[str, float]:
    """Wall time of reverse steps, and that of the prior in it."""
    steps = list(steps)
    return {
        "prior": sum(step.prior_seconds for step in steps),
        "sampling": sum(step.seconds for step in steps),
    }


def draw(
    engine: ImageEngine,
    objective: Objective | None,
    sampler: SamplerSpec,
    size: tuple[int, int],
    hooks: Hooks,
    *,
    seed: int,
    batch: int,
    prompt: str,
    z_BL: Tensor | None = None,
    finish: Callable[[Tensor], Tensor] | None = None,
    beyond: int = 0,
) -> Pictures:
    """Draws a batch of samples.

    Args:
        engine: the prior.
        objective: loss of a decoded picture; None samples without a measurement.
        sampler: the method and its settings.
        size: width and height of the result in pixels.
        hooks: get estimates of the result's size.
        seed: seed of every random draw.
        batch: number of samples.
        prompt: text that describes the picture; may be empty.
        z_BL: decided tokens; see :func:`aps_core.sampling.driver.sample`.
        finish: maps decoded pictures (B, 3, H, W), cropped to ``size``, to the pictures that are
            shown and returned.
        beyond: pixels that are sampled beyond each border of the result.
    """
    width, height = size
    rows, columns = slice(beyond, beyond + height), slice(beyond, beyond + width)
    on_step, on_inner = hooks.on_step, hooks.on_inner
    steps: list[StepNumbers] = []

    def shown(x_BCHW: Tensor) -> Tensor:
        picture_BCHW = x_BCHW[..., rows, columns]
        return finish(picture_BCHW) if finish is not None else picture_BCHW

    def report(info: StepInfo) -> bool | None:
        steps.append(StepNumbers.of(info))
        return on_step(info.showing(shown)) if on_step is not None else None

    sample = driver.sample(
        engine.prior,
        objective,
        sampler,
        grid=engine.grid(height + 2 * beyond, width + 2 * beyond),
        generator=torch.Generator(engine.device).manual_seed(seed),
        batch=batch,
        condition=prompt,
        on_step=report,
        on_inner=on_inner and (lambda info: on_inner(info.showing(shown))),
        resume=hooks.resume,
        z_BL=z_BL,
    )
    deviation_BHW = sample.deviation_BHW
    measured = objective is not None
    return Pictures(
        pictures_BCHW=shown(sample.x_BCHW).clamp(-1, 1),
        deviation_BHW=None if deviation_BHW is None else deviation_BHW[:, rows, columns],
        codes_BL=sample.z_BL,
        misfit_B=sample.misfit_B.tolist() if measured else [],
        noise_floor=objective.noise_floor if objective is not None else 0.0,
        misfit_curve=[step.misfit for step in steps] if measured else [],
        inner_steps=[step.inner_steps for step in steps],
        seconds=seconds_of(steps),
        resumed_from_step=hooks.resume.step if hooks.resume else None,
    )
