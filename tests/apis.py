"""Starts the service for tests: whole, or further API processes on the server of a running one."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from redis import Redis

from service.jobs import WorkerInfo, WorkerRegistry
from service.launch.embedded_server import running_server
from service.launch.processes import api_command, free_port, wait_ready
from service.launch.supervisor import process
from service.settings import Settings
from tests.stack import Stack


@contextmanager
def running_api(settings: Settings, log: Path, **changes: Any) -> Iterator[httpx.Client]:
    """Starts an API process with ``changes`` to ``settings`` and yields a client of it."""
    port = free_port()
    with (
        process(
            "API", api_command("127.0.0.1", port), settings.model_copy(update=changes), log
        ) as api,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http,
    ):
        wait_until_it_answers(http, api, log)
        yield http


def wait_until_it_answers(http: httpx.Client, api: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until an API responds; fails with its log if it exits or takes too long."""
    deadline = time.monotonic() + 240
    while True:
        try:
            http.get("/livez").raise_for_status()
        except httpx.TransportError:
            assert api.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        else:
            return


def register_idle_worker(settings: Settings, checkpoints: tuple[str, ...] = ()) -> None:
    """Registers a worker that takes no jobs, so that submissions are accepted, for 20 seconds."""
    with Redis.from_url(settings.redis_url) as redis:
        speed, room = (
            {"seconds_per_token": 1e-4, "max_pixels": 512 * 512},
            {"job_bytes": 10**9, "token_bytes": 1},
        )
        for prior in settings.priors:
            worker = WorkerInfo(
                name=f"idle {prior}",
                prior=prior,
                device="cpu",
                checkpoints=checkpoints,
                **speed,
                **room,
            )
            WorkerRegistry(redis, settings.key_prefix).renew(worker)


@contextmanager
def started_stack(folder: Path, **changes: Any) -> Iterator[Stack]:
    """Starts server, API and a worker, with ``changes`` to the default settings."""
    with ExitStack() as stack:
        base = Settings(
            metrics_port=free_port(),
            data_dir=folder,
            artifacts_dir=folder / "artifacts",
            threads=1,
            **changes,
        )
        settings = base.model_copy(update={"redis_url": stack.enter_context(running_server(base))})
        port = free_port()
        log, url = folder / "service.log", f"http://127.0.0.1:{port}"
        api = stack.enter_context(process("API", api_command("127.0.0.1", port), settings, log))
        http = stack.enter_context(httpx.Client(base_url=url, timeout=30))
        running = Stack(settings=settings, url=url, http=http, log=log, exits=stack)
        wait_until_it_answers(http, api, log)
        running.start_worker()
        wait_ready(url, {"API": api})
        yield running
