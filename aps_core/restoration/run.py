"""Executes a plan: as a whole or in tiles, with hooks, from the start or a checkpoint."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.priors import PriorSpec
from aps_core.restoration.drawing import Hooks, draw
from aps_core.restoration.plan import TEXT_NOTE, Plan
from aps_core.restoration.result import Pictures, Restoration
from aps_core.restoration.tiles import TiledRun
from aps_core.verdict.fit import judge

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.engines.engine import ImageEngine
else:
    torch = lazy_import("torch")


def run(plan: Plan, engine: ImageEngine, hooks: Hooks) -> Restoration:
    """Restores the pictures behind a measurement, and judges the best one.

    Args:
        plan: what to do.
        engine: the prior that it was planned for, perhaps with less need of memory.
        hooks: callbacks, with estimates of the pictures' size; a checkpoint to resume.

    Raises:
        InvalidSpec: no pixel of a tile is known.
        WeightsMissing, WeightsInvalid: weights of the loss are absent or damaged.
        SamplingCancelled: a hook returned False.
        SamplingDiverged: the loss is not finite.
    """
    started, settings = time.perf_counter(), plan.settings
    if plan.layout.tiling is not None:
        made = TiledRun(plan, engine, hooks, plan.layout.tiling).run()
    else:
        made = _whole(plan, engine, hooks)
    prior, notes = engine.spec, [*plan.notes, *made.notes]
    if plan.shows_text:
        notes.append(TEXT_NOTE)
        if prior.content == "documents":
            notes.append(f"The prior '{prior.type}' was trained on pages and screens.")
    made.seconds["total"] = time.perf_counter() - started
    return Restoration(
        **{
            **vars(made),
            "notes": notes,
            "found": plan.found,
            "text_notice": TEXT_NOTE if plan.shows_text else "",
        },
        sigma=plan.sigma,
        peak=plan.peak,
        samples=settings.samples,
        prior=prior.type if prior.type in PriorSpec.family else None,
        sampler=settings.sampler,
        loss=settings.loss,
        seed=settings.seed,
    )


def _whole(plan: Plan, engine: ImageEngine, hooks: Hooks) -> Pictures:
    """Samples the whole picture, and what lies beyond its borders."""
    settings, layout, observation = plan.settings, plan.layout, plan.observation
    y_BCHW, (width, height) = observation.y_BCHW, layout.computed
    noise = plan.likelihood_noise(y_BCHW)
    if isinstance(noise, torch.Tensor) and noise.ndim == y_BCHW.ndim:
        noise = _for_each(noise, settings.samples)
    objective = engine.measurement_objective(
        observation.wide.cropped(height, width),
        _for_each(y_BCHW, settings.samples),
        noise,
        settings.loss,
    )
    made = draw(
        engine,
        objective,
        settings.sampler.for_samples(settings.samples),
        layout.picture,
        hooks,
        seed=settings.seed,
        batch=len(y_BCHW) * settings.samples,
        prompt=settings.prompt,
        beyond=layout.beyond,
    )
    best, judged = _best(made.misfit_B[: settings.samples]), plan.judged_noise(y_BCHW)
    fit = judge(
        observation.bound,
        plan.words,
        made.pictures_BCHW[best],
        y_BCHW[0],
        judged.expand_as(y_BCHW)[0] if isinstance(judged, torch.Tensor) else judged,
        engine.prior.tokenizer,
        hooks.while_judging(settings.sampler.steps),
    )
    return replace(made, drawn=observation.bound.state(), fit=fit)


def _for_each(values_BCHW: Tensor, samples: int) -> Tensor:
    """Values of several measurements, repeated for each sample of theirs."""
    return values_BCHW.repeat_interleave(samples, 0) if len(values_BCHW) > 1 else values_BCHW


def _best(misfits: list[float]) -> int:
    """Index of the sample with the lowest misfit."""
    return misfits.index(min(misfits))
