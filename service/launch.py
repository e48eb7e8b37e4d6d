"""Everything on one machine: embedded server, API and workers as child processes, started and stopped together."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from aps_core.errors import APSError
from service.embedded import running_server
from service.lifeline import lifeline
from service.settings import Settings

log = logging.getLogger(__name__)

START_SECONDS = 120
STOP_SECONDS = 30
"""Longer than one reverse step: a worker finishes its step and hands the job back."""


class LaunchFailed(APSError):
    """A process of the service did not start, or ended by itself."""

    code = "launch_failed"
    title = "The service did not start"


@contextmanager
def process(name: str, command: list[str], settings: Settings, log_file: Path | None = None, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a child with these settings in its environment; asks it to stop in the end, then insists."""
    output = log_file.open("ab") if log_file else None
    # a session of its own: Ctrl-C reaches the launcher alone, which stops the children in order
    # and killed when the launcher is: jobs survive that, and nobody would be left to stop it
    child = subprocess.Popen(
        command,
        env={**settings.environment(), **environment},
        start_new_session=True,
        stdout=output,
        stderr=output,
        preexec_fn=lifeline(signal.SIGKILL),
    )
    if output:
        output.close()
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                log.warning("%s did not stop in %d s and is killed", name, STOP_SECONDS)
                child.kill()
                child.wait()


def api_command(host: str, port: int) -> list[str]:
    """The API on ``host:port``."""
    options = ["--host", host, "--port", str(port), "--no-access-log", "--timeout-graceful-shutdown", "5"]
    return [sys.executable, "-m", "uvicorn", "--factory", "service.main:create_app", *options]


def worker_command(settings: Settings) -> list[str]:
    """One worker: a parent and the child that computes."""
    celery = [sys.executable, "-m", "celery", "-q", "-A", "worker.app", "worker", "-l", settings.log_level]
    return [*celery, "-P", "prefork", "-c", "1", "--without-gossip", "--without-mingle"]


def wait_ready(url: str, children: dict[str, subprocess.Popen[bytes]], seconds: float = START_SECONDS) -> None:
    """Waits until the API answers that it is ready.

    Raises:
        LaunchFailed: a child ended, or time ran out.
    """
    deadline = time.monotonic() + seconds
    last = "no answer"
    while time.monotonic() < deadline:
        check_alive(children)
        try:
            answer = httpx.get(f"{url}/readyz", timeout=5)
            if answer.status_code == 200:
                return
            last = answer.json().get("detail", answer.text)
        except httpx.TransportError as error:
            last = str(error)
        time.sleep(0.1)
    raise LaunchFailed(f"The service is not ready after {seconds:.0f} s: {last}")


def check_alive(children: dict[str, subprocess.Popen[bytes]]) -> None:
    """Raises LaunchFailed when a child has ended."""
    for name, child in children.items():
        if child.poll() is not None:
            raise LaunchFailed(f"The {name} ended with status {child.returncode}; see its output above.")


@contextmanager
def running_service(
    settings: Settings, *, embedded: bool, workers: int = 1, host: str = "127.0.0.1", port: int = 8000, log_file: Path | None = None
) -> Iterator[tuple[str, dict[str, subprocess.Popen[bytes]]]]:
    """The whole service, ready; yields its URL and its processes.

    Raises:
        LaunchFailed, ServerUnavailable: it does not come up.
    """
    settings = settings.model_copy(update={"host": host})
    with ExitStack() as stack:
        if embedded:
            settings = settings.model_copy(update={"redis_url": stack.enter_context(running_server(settings))})
        url = f"http://{host}:{port}"
        children: dict[str, subprocess.Popen[bytes]] = {}
        for number in range(1, workers + 1):
            name = f"worker {number}"
            children[name] = stack.enter_context(process(name, worker_command(settings), settings, log_file, **_pinned(settings, number)))
        children["API"] = stack.enter_context(process("API", api_command(host, port), settings, log_file))
        wait_ready(url, children)
        yield url, children


def launch(settings: Settings, *, embedded: bool, workers: int = 1, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serves until interrupted or terminated.

    Raises:
        LaunchFailed, ServerUnavailable: the service does not come up, or a process of it ends.
    """
    over = threading.Event()
    previous = {number: signal.signal(number, lambda *_: over.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with running_service(settings, embedded=embedded, workers=workers, host=host, port=port) as (url, children):
            log.info("Ready: %s", url)
            while not over.wait(1):
                check_alive(children)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _pinned(settings: Settings, number: int) -> dict[str, Any]:
    """One device and one metrics port for each worker."""
    pinned: dict[str, Any] = {}
    if settings.device == "cuda" and "CUDA_VISIBLE_DEVICES" not in os.environ:
        pinned["CUDA_VISIBLE_DEVICES"] = str(number - 1)
    if settings.metrics_port:
        pinned["APS_METRICS_PORT"] = str(settings.metrics_port + number - 1)
    return pinned
