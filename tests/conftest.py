"""Shared fixtures: a Redis-compatible server, and the service with API and worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from redis import Redis

from service.launch.embedded_server import running_server
from service.launch.processes import api_command, wait_ready
from service.launch.supervisor import process
from service.settings import Settings
from tests.apis import wait_until_it_answers
from tests.stack import Stack, free_port


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Redis-compatible server on a unix socket."""
    with running_server(Settings(data_dir=tmp_path_factory.mktemp("server"))) as url:
        yield url


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """A client of the server, emptied for each test."""
    client = Redis.from_url(redis_url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    """Settings of a separate service per test."""
    return Settings(redis_url=redis_url, artifacts_dir=tmp_path / "artifacts", data_dir=tmp_path)


@pytest.fixture(scope="session")
def running_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Starts server, API and a worker with the embedded prior; short leases keep tests fast."""
    folder = tmp_path_factory.mktemp("stack")
    with ExitStack() as stack:
        base = Settings(
            metrics_port=free_port(),
            data_dir=folder,
            artifacts_dir=folder / "artifacts",
            threads=1,
            lease_seconds=2,
            heartbeat_seconds=0.5,
            sweep_seconds=0.3,
            max_upload_bytes=2_000_000,
            max_job_seconds=10**6,  # some tests need a worker that is busy for long
            max_backlog_seconds=0,
            webhook_allow_private=True,
        )
        settings = base.model_copy(update={"redis_url": stack.enter_context(running_server(base))})
        port = free_port()
        log, url = folder / "service.log", f"http://127.0.0.1:{port}"
        api = stack.enter_context(process("API", api_command("127.0.0.1", port), settings, log))
        http = stack.enter_context(httpx.Client(base_url=url, timeout=30))
        running = Stack(settings, url, http, log, stack)
        wait_until_it_answers(http, api, log)
        running.start_worker()
        wait_ready(url, {"API": api})
        yield running


@pytest.fixture
def stack(running_stack: Stack) -> Stack:
    """The running service, with a worker."""
    running_stack.ensure_worker()
    return running_stack
