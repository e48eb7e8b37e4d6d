"""Starts and stops the processes of one machine: embedded server, API, a worker per device."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from aps_core.errors import APSError
from service.access.start import check_start, opened_keys
from service.launch.devices import gpus
from service.launch.embedded_server import running_server
from service.launch.supervisor import Supervisor
from service.settings import Settings

log = logging.getLogger(__name__)

START_SECONDS = 600
"""A busy machine may load priors for minutes; a process that ends is noticed at once."""
REPORT_SECONDS = 30
"""Between two log lines that say what a start waits for."""


class LaunchFailed(APSError):
    """A process of the service did not start, or exited unexpectedly."""

    code = "launch_failed"
    title = "The service did not start"


def free_port() -> int:
    """Finds an unused TCP port on the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def api_command(host: str, port: int) -> list[str]:
    """Command line of the API on ``host:port``."""
    options = [
        "--host",
        host,
        "--port",
        str(port),
        "--no-access-log",
        "--timeout-graceful-shutdown",
        "5",
    ]
    return [sys.executable, "-m", "uvicorn", "--factory", "service.main:create_app", *options]


def worker_command(settings: Settings) -> list[str]:
    """Command line of one worker: a parent and the child that computes."""
    celery = [
        sys.executable,
        "-m",
        "celery",
        "-q",
        "-A",
        "worker.app",
        "worker",
        "-l",
        settings.log_level,
    ]
    return [*celery, "-P", "prefork", "-c", "1", "--without-gossip", "--without-mingle"]


def wait_ready(
    url: str, children: Mapping[str, subprocess.Popen[bytes]], seconds: float = START_SECONDS
) -> None:
    """Waits until the API reports that it is ready.

    Raises:
        LaunchFailed: a child exited, or ``seconds`` have passed.
    """
    start = time.monotonic()
    last, reports = "no answer", 0
    while (waited := time.monotonic() - start) < seconds:
        if waited >= (reports + 1) * REPORT_SECONDS:
            reports += 1
            log.warning("The service is not ready after %.0f s: %s", waited, last)
        for name, child in children.items():
            if child.poll() is not None:
                raise LaunchFailed(
                    f"The {name} ended with status {child.returncode}; see its output above."
                )
        try:
            answer = httpx.get(f"{url}/readyz", timeout=5)
            if answer.status_code == 200:
                return
            last = answer.json().get("detail", answer.text)
        except httpx.TransportError as error:
            last = str(error)
        time.sleep(0.1)
    raise LaunchFailed(f"The service is not ready after {seconds:.0f} s: {last}")


@contextmanager
def running_service(
    settings: Settings,
    *,
    embedded: bool,
    host: str = "127.0.0.1",
    port: int = 8000,
    log_file: Path | None = None,
) -> Iterator[tuple[str, Supervisor]]:
    """Runs the whole service; yields its URL and its supervisor when it is ready. The caller must
    call :meth:`Supervisor.tend` regularly.

    Raises:
        KeyRefused: keys are required and none exists; nothing else has been started then.
        LaunchFailed, ServerUnavailable: it does not start.
        NoDevice: there is no GPU for the workers.
    """
    settings = settings.model_copy(update={"host": host})
    with ExitStack() as stack:
        if embedded:
            settings = settings.model_copy(
                update={"redis_url": stack.enter_context(running_server(settings))}
            )
        with opened_keys(settings) as keys:
            check_start(settings, keys)
        url = f"http://{host}:{port}"
        supervisor = Supervisor(settings, log_file)
        stack.callback(supervisor.stop)
        start_workers(supervisor, settings)
        supervisor.start("API", api_command(host, port))
        wait_ready(url, supervisor.children)
        yield url, supervisor


def launch(
    settings: Settings, *, embedded: bool, host: str = "127.0.0.1", port: int = 8000
) -> None:
    """Serves until interrupted or terminated; restarts processes that exit.

    Raises:
        KeyRefused, LaunchFailed, ServerUnavailable, NoDevice: the service does not start.
    """
    with (
        asked_to_stop() as over,
        running_service(settings, embedded=embedded, host=host, port=port) as (url, supervisor),
    ):
        log.info("Ready: %s", url)
        while not over.wait(1):
            supervisor.tend()


def launch_workers(settings: Settings) -> None:
    """Runs one worker on each GPU, or one on the CPU, until interrupted or terminated; restarts
    workers that exit.

    Raises:
        NoDevice: there is no GPU.
    """
    supervisor = Supervisor(settings)
    with asked_to_stop() as over:
        try:
            start_workers(supervisor, settings)
            while not over.wait(1):
                supervisor.tend()
        finally:
            supervisor.stop()


def start_workers(supervisor: Supervisor, settings: Settings) -> None:
    """Starts one worker pinned to each GPU, with its own metrics port; on CPU, a single worker.

    Raises:
        NoDevice: there is no GPU.
    """
    for number, device in enumerate(gpus() if settings.device == "cuda" else [None]):
        pinned = (
            {"CUDA_VISIBLE_DEVICES": device, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if device else {}
        )
        if settings.metrics_port:
            pinned["APS_METRICS_PORT"] = str(settings.metrics_port + number)
        supervisor.start(
            f"worker {number + 1}" + (f" on {device}" if device else ""),
            worker_command(settings),
            **pinned,
        )


@contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """Yields an event that SIGINT and SIGTERM set within the block."""
    over = threading.Event()
    previous = {
        number: signal.signal(number, lambda *_: over.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield over
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
