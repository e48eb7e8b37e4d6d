"""Shared fixtures: a real server, and the real service on top of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from service.embedded import running_server
from service.settings import Settings


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Redis-compatible server on a unix socket."""
    with running_server(Settings(data_dir=tmp_path_factory.mktemp("server"))) as url:
        yield url


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """A client of an empty server."""
    client = Redis.from_url(redis_url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    """Settings of a service of the test's own."""
    return Settings(redis_url=redis_url, artifacts_dir=tmp_path / "artifacts", data_dir=tmp_path)
