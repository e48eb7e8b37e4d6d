"""Shared fixtures: a Redis-compatible server, and the service with API and worker processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from service.launch.embedded_server import running_server
from service.settings import Settings
from tests.apis import started_stack
from tests.stack import Stack

LONG = ("faults", "test_docs.py", "e2e", "ui", "service")
"""Folders and files with the longest tests, the longest first."""


def pytest_configure(config: pytest.Config) -> None:
    """Gives each of several test processes, and the services it starts, one thread. Threads that
    compete for cores with another process's make sampling several times slower.

    The processes take the files in the order of :func:`pytest_collection_modifyitems`; otherwise
    those with the most tests would come first.
    """
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first, so that none of them runs alone at the end."""
    here = Path(__file__).parent
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.relative_to(here).parts[0], len(LONG)))


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
    """Server, API and a worker with the embedded prior; short leases keep tests fast."""
    with started_stack(
        tmp_path_factory.mktemp("stack"),
        lease_seconds=2,
        heartbeat_seconds=0.5,
        sweep_seconds=0.3,
        max_upload_bytes=2_000_000,
        max_job_seconds=10**6,  # some tests need a worker that is busy for long
        max_backlog_seconds=0,
        webhook_allow_private=True,
    ) as running:
        yield running


@pytest.fixture
def stack(running_stack: Stack) -> Stack:
    """The running service, with a worker."""
    running_stack.ensure_worker()
    return running_stack
