"""``aps verify PRIOR``: loads a prior on this machine and runs its checks."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import torch

from aps_cli.checks import CHECKS, Check, Options
from aps_cli.device import default_device
from aps_core.checkpoints import checkpoint_cache
from aps_core.engines.engine import Engine
from aps_core.errors import APSError
from aps_core.priors import PriorSpec
from aps_core.runtime.process import be_reproducible


@dataclass(frozen=True)
class Outcome:
    """Result of one check."""

    name: str
    passed: bool
    detail: str
    seconds: float
    peak_bytes: int
    """Peak memory so far in bytes: allocated on the GPU, or resident size of this process."""


def verify(
    prior: str,
    device: str,
    options: Options,
    threads: int | None,
    report: Callable[[Outcome], None],
) -> bool:
    """Loads the prior, runs its checks and reports each; returns whether all passed."""
    loaded: list[Engine] = []
    spec = PriorSpec.named(prior)(type=prior)

    def load(_: object, __: Options) -> str:
        be_reproducible(threads)
        loaded.append(Engine.load(prior, device))
        return (
            f"{spec.weights_bytes(loaded[0].device.type) / 1e9:.2f} GB of weights estimated, from"
            f" {spec.folders()[0]}"
        )

    passed = _attempt(load, None, options, device, report)
    if not passed:
        return False
    found = [
        _attempt(check, loaded[0], options, device, report) for check in CHECKS[type(loaded[0])]
    ]
    return all(found)


def _attempt(
    check: Check,
    engine: Engine | None,
    options: Options,
    device: str,
    report: Callable[[Outcome], None],
) -> bool:
    started = time.perf_counter()
    try:
        passed, detail = True, check(engine, options)
    except (APSError, torch.OutOfMemoryError) as error:
        passed, detail = False, str(error)
    report(
        Outcome(
            name=check.__name__.replace("_", " "),
            passed=passed,
            detail=detail,
            seconds=time.perf_counter() - started,
            peak_bytes=_peak(device),
        )
    )
    return passed


def _peak(device: str) -> int:
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def run_checks(
    prior: str,
    device: str | None,
    weights_dir: Path | None,
    options: Options,
    threads: int | None,
    as_json: bool,
) -> bool:
    """Verifies a prior and prints one line per check; returns whether all passed.

    Args:
        prior: name of the prior.
        device: ``cpu`` or ``cuda``; None: CUDA if available.
        weights_dir: folder of checkpoints; None: ``APS_WEIGHTS_DIR``.
        options: what to check and how.
        threads: CPU threads; None: PyTorch's default.
        as_json: whether to print JSON objects.
    """
    if weights_dir is not None:
        os.environ[checkpoint_cache.WEIGHTS_DIR] = str(weights_dir)

    def report(outcome: Outcome) -> None:
        if as_json:
            click.echo(json.dumps(asdict(outcome)))
            return
        verdict = (
            click.style("pass", fg="green") if outcome.passed else click.style("FAIL", fg="red")
        )
        click.echo(
            f"{verdict}  {outcome.name:22}{outcome.seconds:7.1f} s{outcome.peak_bytes / 1e9:8.2f}"
            f" GB  {outcome.detail}"
        )

    return verify(prior, default_device(device), options, threads, report)
