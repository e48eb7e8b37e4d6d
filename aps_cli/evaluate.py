"""``aps eval``: the benchmark with progress on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aps_cli.fields import parse_value
from aps_cli.restore import default_device
from aps_core.config import APSConfig
from aps_core.errors import InvalidSpec


def run(
    folder: Path,
    out: Path,
    tasks: tuple[str, ...],
    methods: tuple[str, ...],
    protocols: tuple[str, ...],
    settings: tuple[str, ...],
    *,
    prior: str,
    device: str | None,
    threads: int | None,
    samples: int,
    limit: int | None,
    sigma: float,
    seed: int,
) -> None:
    """Runs :func:`aps_core.evaluation.evaluate` and prints its summary."""
    from aps_core import evaluation
    from aps_core.engine import ImageEngine
    from aps_core.samplers.methods import METHODS

    for kind, given, known in (("task", tasks, evaluation.TASKS), ("method", methods, METHODS), ("protocol", protocols, evaluation.PROTOCOLS)):
        for name in given:
            if name not in known:
                raise InvalidSpec(f"There is no {kind} '{name}'; known: {', '.join(known)}.")
    explicit: dict[str, Any] = {}
    overrides: dict[str, dict[str, Any]] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        method, dot, field = name.rpartition(".")
        if dot and method not in METHODS:
            raise InvalidSpec(f"--set {name}: there is no method '{method}'; known: {', '.join(METHODS)}.")
        (overrides.setdefault(method, {}) if dot else explicit)[field] = parse_value(value)
    config = APSConfig.model_validate(explicit)
    engine = ImageEngine.load(prior, default_device(device), threads)
    rows = evaluation.evaluate(
        engine,
        config.with_recommended(engine.spec.recommended),
        folder,
        out,
        tasks=tasks or tuple(evaluation.TASKS),
        methods=methods or tuple(METHODS),
        protocols=protocols,
        sigma=sigma,
        seed=seed,
        samples=samples,
        limit=limit,
        overrides=overrides,
        report=lambda row: click.echo(
            f"{row.protocol:9} {row.task:14} {row.image:12} {row.method:13} {row.psnr:6.2f} dB  SSIM {row.ssim:.3f}"
            f"  {row.seconds:6.1f} s  {row.decodes:5} decodes"
        ),
    )
    click.echo("\n" + evaluation.summary(rows))
    click.echo(f"Tables and pictures: {out}")
