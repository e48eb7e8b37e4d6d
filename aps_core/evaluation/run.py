"""Runs methods on cases and writes one row of the per-image table for each. Existing rows are not
computed again.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.baselines import BASELINES
from aps_core.evaluation.cases import Case, Setup, make_case
from aps_core.evaluation.lpips import LPIPS
from aps_core.evaluation.photographs import Photographs
from aps_core.evaluation.rows import Cost, Row, append, read_rows, score
from aps_core.imaging import images
from aps_core.losses.measurement import MeasurementLoss
from aps_core.samplers import SamplerSpec
from aps_core.samplers.aps import APSConfig
from aps_core.sampling import driver
from aps_core.types import Sample, StepHook, StepInfo
from aps_core.verdict.fit import round_trip

REFERENCES = ("ceiling", *BASELINES)
"""Pictures without a sampler: the tokenizer's reconstruction of the truth, and baselines."""
Trajectory = list[tuple[int, float]]
"""Decoder evaluations so far and data misfit, after every reverse step."""


@dataclass(frozen=True)
class Variant:
    """A registered sampler by type, and its differences to the benchmark's settings."""

    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of :class:`aps_core.samplers.aps.APSConfig`, from which every method's settings are
    derived.
    """
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the method's own settings, for tuning."""
    loss: Mapping[str, Any] = field(default_factory=dict)
    """Fields of :class:`aps_core.losses.measurement.MeasurementLoss`."""
    samples: int = 1
    """Number of samples whose mean is evaluated."""

    def label(self, base: Setup) -> str:
        """Name in the table, equal for variants that produce the same pictures."""
        changed = {
            name: value
            for spec, changes in ((base.sampler, self.changes), (base.loss, self.loss))
            for name, value in changes.items()
            if getattr(spec, name) != value
        }
        parts = [
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in sorted({**changed, **self.settings}.items())
        ]
        return " ".join(
            [self.method, *parts, *([f"mean of {self.samples}"] if self.samples > 1 else [])]
        )


@dataclass(frozen=True)
class Plan:
    """Runs for every photograph: all variants on all tasks, at all noise levels, under all
    protocols.
    """

    tasks: tuple[str, ...]
    variants: tuple[Variant, ...]
    protocols: tuple[str, ...] = ("native",)
    sigmas: tuple[float, ...] = (0.05,)
    seed: int = 0

    def size(self, photos: int) -> int:
        """Number of rows of the plan."""
        return (
            len(self.tasks)
            * (len(self.variants) + len(REFERENCES))
            * len(self.protocols)
            * len(self.sigmas)
            * photos
        )


def run_method(
    engine: ImageEngine, setup: Setup, case: Case, variant: Variant, seed: int
) -> tuple[Tensor, int, Trajectory]:
    """Samples (B, 3, H, W) of one method on one case, decoder evaluations per sample, and the
    misfit after every step.
    """
    decodes, trajectory = 1, []  # the last decode is of the final tokens

    def follow(info: StepInfo) -> None:
        nonlocal decodes
        decodes += len(info.loss_curve)
        trajectory.append((decodes - 1, info.misfit))

    sample = sampled(engine, setup, case, variant, seed, follow)
    return sample.x_BCHW[..., : case.height, : case.width].clamp(-1, 1), decodes, trajectory


def sampled(
    engine: ImageEngine,
    setup: Setup,
    case: Case,
    variant: Variant,
    seed: int,
    on_step: StepHook | None = None,
) -> Sample:
    """Samples of one method on one case, with the padding of the token grid."""
    common = APSConfig(**{**setup.sampler.model_dump(), **variant.changes})
    loss = MeasurementLoss(**{**setup.loss.model_dump(), **variant.loss})
    sampler = SamplerSpec.named(variant.method).like(
        common, {**engine.spec.tuned.get(variant.method, {}), **variant.settings}
    )
    return driver.sample(
        engine.prior,
        engine.measurement_objective(case.operator, case.y_CHW, case.likelihood_noise, loss),
        sampler,
        grid=engine.grid(case.height, case.width),
        generator=torch.Generator(engine.device).manual_seed(seed),
        batch=variant.samples,
        on_step=on_step,
    )


def cases(
    engine: ImageEngine, setup: Setup, photos: Photographs, plan: Plan
) -> Iterator[tuple[int, Case]]:
    """All cases of a plan with the photograph's number, in order of photographs."""
    for protocol in plan.protocols:
        for number, (name, truth) in enumerate(photos):
            for sigma in plan.sigmas:
                for task in plan.tasks:
                    yield (
                        number,
                        make_case(
                            engine, setup, protocol, task, name, truth, sigma, plan.seed + number
                        ),
                    )


def evaluate(
    engine: ImageEngine,
    setup: Setup,
    photos: Photographs,
    out: Path,
    plan: Plan,
    *,
    lpips: LPIPS | None = None,
    report: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Runs a plan; writes ``per_image.csv``, ``trajectories.csv`` and ``pictures/`` into ``out``.

    Returns the plan's rows, including those of an earlier run.
    """
    (out / "pictures").mkdir(parents=True, exist_ok=True)
    rows = {row.key: row for row in read_rows(out / "per_image.csv", Row)}
    wanted = []
    labels = {variant.label(setup): variant for variant in plan.variants}
    for _, case in cases(engine, setup, photos, plan):
        keys = [
            (case.protocol, case.task, case.sigma, case.image, name)
            for name in (*REFERENCES, *labels)
        ]
        wanted += keys
        for key in (key for key in keys if key not in rows):
            x, cost, trajectory = _picture(engine, setup, case, key[-1], labels, plan.seed)
            row = rows[key] = score(case, key[-1], x, cost, lpips)
            _keep(out, case, key[-1], x, trajectory)
            append(out / "per_image.csv", row)
            report(row)
    return [rows[key] for key in wanted]


def _picture(
    engine: ImageEngine,
    setup: Setup,
    case: Case,
    name: str,
    labels: Mapping[str, Variant],
    seed: int,
) -> tuple[Tensor, Cost, Trajectory]:
    """The picture (1, 3, H, W) of a row. The mean of several samples is drawn separately."""
    on_gpu = engine.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(engine.device)
    started = time.perf_counter()
    if name in REFERENCES:
        x = (
            round_trip(engine.prior.tokenizer, case.truth_CHW)
            if name == "ceiling"
            else BASELINES[name](case)
        )
        return x, Cost(time.perf_counter() - started), []
    variant = labels[name]
    drawn, decodes, trajectory = run_method(
        engine, setup, case, variant, seed + (variant.samples > 1)
    )
    x = drawn.mean(0, keepdim=True)
    gib = torch.cuda.max_memory_allocated(engine.device) / 2**30 if on_gpu else math.nan
    return x, Cost(time.perf_counter() - started, decodes * variant.samples, gib), trajectory


def picture_name(protocol: str, task: str, sigma: float, image: str, column: str) -> str:
    """File name of a picture below ``pictures/``."""
    return f"{protocol}-{task}-{sigma:g}-{image}-{column.replace(' ', '_')}.png"


def _keep(out: Path, case: Case, name: str, x_BCHW: Tensor, trajectory: Trajectory) -> None:
    shown = {name: x_BCHW[0]}
    if name == "input":
        shown |= {"measurement": case.y_CHW.clamp(-1, 1), "truth": case.truth_CHW}
    for column, x_CHW in shown.items():
        images.to_pil(x_CHW).save(
            out
            / "pictures"
            / picture_name(case.protocol, case.task, case.sigma, case.image, column)
        )
    with (out / "trajectories.csv").open("a", newline="") as file:
        writer = csv.writer(file)
        if file.tell() == 0:
            writer.writerow(
                ["protocol", "task", "sigma", "image", "method", "decodes", "misfit", "noise_floor"]
            )
        about = case.protocol, case.task, case.sigma, case.image, name
        writer.writerows(
            [*about, decodes, misfit, case.objective.noise_floor] for decodes, misfit in trajectory
        )
