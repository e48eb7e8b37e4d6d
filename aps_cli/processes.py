"""``aps serve``, ``worker``, ``webhooks`` and ``demo``: start processes of the service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
import time
from pathlib import Path

import click

from aps_cli.device import default_device
from service.access.start import check_start, opened_keys
from service.launch import processes as launch
from service.launch.devices import gpus
from service.settings import Settings
from service.webhooks.sender import send_webhooks


def settings_for(device: str | None, **changes: object) -> Settings:
    """Reads the settings from the environment (``APS_*``) and applies ``changes``.

    Args:
        device: overrides ``APS_DEVICE``; if neither is given, CUDA if available.
        changes: further settings to override.
    """
    settings = Settings()
    if device is not None or "APS_DEVICE" not in os.environ:
        changes["device"] = default_device(device)
    return settings.model_copy(update=changes)


def serve(host: str, port: int, embedded: bool, device: str | None) -> None:
    """Replaces this process by the API; with ``embedded``, runs all processes as children."""
    _log()
    if embedded:
        launch.launch(settings_for(device), embedded=True, host=host, port=port)
    else:
        settings = Settings().model_copy(update={"host": host})
        command = launch.api_command(host, port)
        with opened_keys(settings) as keys:
            check_start(settings, keys)
        os.execve(command[0], command, settings.environment())


def worker(device: str | None) -> None:
    """Supervises one worker per GPU; without several GPUs, replaces this process by the worker."""
    settings = settings_for(device)
    if settings.device == "cuda" and len(gpus()) > 1:
        _log()
        launch.launch_workers(settings)
        return
    command = launch.worker_command(settings)
    os.execve(command[0], command, settings.environment())


def webhooks() -> None:
    """Sends webhooks until SIGINT or SIGTERM."""
    _log()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(send_webhooks(Settings()))


def demo(photo: Path, page: Path, out: Path, once: bool, port: int) -> None:
    """Starts a service with temporary data, restores two pictures through it, then serves the
    studio.

    Args:
        photo: a clean photograph.
        page: a clean page or screen.
        out: folder for the pictures and the log.
        once: whether to stop after the jobs.
        port: port of the API; 0 selects a free one.
    """
    from aps_cli.demo import restore_both

    port = port or launch.free_port()
    with tempfile.TemporaryDirectory(prefix="aps-demo-") as folder:
        settings = settings_for(
            None, data_dir=Path(folder), artifacts_dir=Path(folder) / "artifacts"
        )
        log = out / "service.log"
        out.mkdir(parents=True, exist_ok=True)
        click.echo(f"Starting server, API and worker (log: {log}) ...")
        with launch.running_service(settings, embedded=True, port=port, log_file=log) as (
            url,
            supervisor,
        ):
            restore_both(url, photo, page, out)
            if once:
                return
            click.echo(f"Studio: {url}   (Ctrl-C stops)")
            try:
                while True:
                    supervisor.tend()
                    time.sleep(1)
            except KeyboardInterrupt:
                click.echo("Stopping.")


def _log() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    # it would name every question whether the service is ready
    logging.getLogger("httpx").setLevel(logging.WARNING)
