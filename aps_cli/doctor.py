"""``aps doctor``: checks this machine's installation and suggests fixes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import click
import httpx
from rich.console import Console
from rich.table import Table

from service.settings import Settings

FREE_BYTES = 5_000_000_000
"""Free disk space below this produces a note."""


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    check: str
    state: Literal["ok", "note", "problem"]
    """``note``: an optional feature is unavailable; ``problem``: a required one is."""
    found: str
    advice: str = ""


@click.command()
@click.option("--server", envvar="APS_SERVER", show_envvar=True, help="Also check this service.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8000,
    show_default=True,
    help="Port planned for the API.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per check.")
def doctor(server: str | None, port: int, as_json: bool) -> None:
    """Check Python, GPU, weights, Redis, port, disk and a service, and suggest fixes.

    The exit code is 1 if something required is missing.
    """
    settings = Settings()
    findings = [finding for check in _checks(settings, port, server) for finding in check()]
    if as_json:
        for finding in findings:
            click.echo(json.dumps(asdict(finding)))
    else:
        _show(findings)
    if any(finding.state == "problem" for finding in findings):
        raise click.exceptions.Exit(1)


def _checks(
    settings: Settings, port: int, server: str | None
) -> list[Callable[[], Iterator[Finding]]]:
    local = [
        lambda: _compute(settings),
        lambda: _weights(settings),
        lambda: _redis(settings),
        lambda: _port(port),
        lambda: _disk(settings),
    ]
    return [*local, lambda: _service(server)] if server else local


def _compute(settings: Settings) -> Iterator[Finding]:
    """Checks Python, PyTorch and the devices."""
    if find_spec("torch") is None:
        yield Finding(
            "compute",
            "note",
            "PyTorch is not installed: this machine can run the client, but compute nothing itself",
            "pip install '.[library]' in the source folder",
        )
        return
    import torch

    version = f"Python {sys.version.split()[0]}, PyTorch {torch.__version__}"
    if not torch.cuda.is_available():
        state: Literal["problem", "note"] = "problem" if settings.device == "cuda" else "note"
        yield Finding(
            "compute",
            state,
            f"{version}, {torch.get_num_threads()} CPU threads, no GPU",
            "enough for the embedded priors; others need an NVIDIA GPU and driver",
        )
        return
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        yield Finding(
            "compute",
            "ok",
            f"{version}, GPU {number}: {torch.cuda.get_device_name(number)}, {free / 1e9:.0f} of"
            f" {total / 1e9:.0f} GB free",
        )


def _weights(settings: Settings) -> Iterator[Finding]:
    """Checks the weights of the configured priors, then lists other priors without weights."""
    from aps_core.priors import PriorSpec

    for name in settings.priors:
        missing = PriorSpec.named(name).missing()
        yield Finding(
            "weights",
            "problem" if missing else "ok",
            f"{name}: {missing or 'installed'}",
            "aps weights list; aps weights fetch NAME" if missing else "",
        )
    others = [
        name
        for name in sorted(PriorSpec.family)
        if name not in settings.priors and PriorSpec.named(name).missing()
    ]
    if others:
        yield Finding(
            "weights",
            "note",
            f"not installed: {', '.join(others)}",
            "needed only to use these priors: aps weights list",
        )


def _redis(settings: Settings) -> Iterator[Finding]:
    """Checks that the job store responds, or that an embedded one can be started."""
    if find_spec("redis") is None:
        yield Finding(
            "redis",
            "note",
            "the service's packages are not installed: this machine can run the client only",
            "pip install '.[service]' in the source folder",
        )
        return
    from redis.exceptions import RedisError

    from service.jobs import connect
    from service.launch.embedded_server import ServerUnavailable, server_binary

    redis = connect(settings.redis_url)
    try:
        info = redis.info()
        yield Finding(
            "redis", "ok", f"{settings.redis_url} responds, version {info['redis_version']}"
        )
        if not int(info.get("aof_enabled", 0)):
            yield Finding(
                "redis",
                "note",
                "persistence is off: a restart of Redis loses all jobs",
                "start Redis with --appendonly yes",
            )
        return
    except RedisError as error:
        reason = str(error)
    finally:
        redis.close()
    try:
        yield Finding(
            "redis",
            "note",
            f"{settings.redis_url}: {reason}",
            f"'aps serve --embedded' starts its own server ({server_binary(settings)})",
        )
    except ServerUnavailable as error:
        yield Finding("redis", "problem", f"{settings.redis_url}: {reason}", str(error))


def _port(port: int) -> Iterator[Finding]:
    """Checks that the API's port is free, or in use by this service."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            busy = error.strerror
        else:
            yield Finding("port", "ok", f"{port} is free")
            return
    try:
        is_service = httpx.get(f"http://127.0.0.1:{port}/livez", timeout=5).json() == {
            "status": "ok"
        }
    except (httpx.HTTPError, ValueError):
        is_service = False
    if is_service:
        yield Finding("port", "ok", f"{port}: this service responds")
    else:
        yield Finding(
            "port",
            "problem",
            f"{port}: {busy}",
            f"stop the program that uses it, or: aps serve --port {port + 1}",
        )


def _disk(settings: Settings) -> Iterator[Finding]:
    """Checks the folders of pictures and jobs for write permission and free space."""
    for folder in dict.fromkeys((settings.artifacts_dir, settings.data_dir)):
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(existing).free
        text = f"{folder}: {free / 1e9:.0f} GB free"
        if not _writable(existing):
            yield Finding(
                "disk",
                "problem",
                f"{folder} is not writable",
                "set APS_ARTIFACTS_DIR and APS_DATA_DIR to writable folders",
            )
        elif free < FREE_BYTES:
            yield Finding(
                "disk",
                "note",
                text,
                "free some space, or lower APS_JOB_TTL_SECONDS to delete results sooner",
            )
        else:
            yield Finding("disk", "ok", text)


def _service(server: str) -> Iterator[Finding]:
    try:
        answer = httpx.get(f"{server.rstrip('/')}/readyz", timeout=10)
        body = answer.json()
    except httpx.HTTPError as error:
        yield Finding(
            "service",
            "problem",
            f"{server}: {error}",
            "check that the service is running; 'aps serve --embedded' starts one",
        )
    except ValueError:
        yield Finding(
            "service",
            "problem",
            f"{server} returned {answer.status_code}, but is not an APS service",
            "check the address",
        )
    else:
        if answer.status_code == 200:
            yield Finding(
                "service", "ok", f"{server} is ready: {', '.join(body.get('priors', []))}"
            )
        else:
            yield Finding(
                "service",
                "problem",
                f"{server}: {body.get('detail', answer.status_code)}",
                "start a worker: aps worker",
            )


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _show(findings: list[Finding]) -> None:
    marks = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "problem": "[red]problem[/]"}
    table = Table(box=None, pad_edge=False, show_header=False)
    for style in ("", "bold", ""):
        table.add_column(style=style, overflow="fold")
    for finding in findings:
        table.add_row(
            marks[finding.state],
            finding.check,
            finding.found + (f"\n[dim]-> {finding.advice}[/]" if finding.advice else ""),
        )
    Console().print(table)
