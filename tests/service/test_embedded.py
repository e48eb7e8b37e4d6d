"""The embedded server: private, durable, one per folder."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from redis import Redis

from service.launch.embedded_server import ServerUnavailable, running_server
from service.settings import Settings


def test_it_is_private_durable_and_does_not_evict(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    with running_server(settings) as url:
        client = Redis.from_url(url)
        assert stat.S_IMODE(Path(url.removeprefix("unix://")).stat().st_mode) == 0o700
        options = client.config_get("appendonly", "maxmemory-policy", "port")
        assert options == {"appendonly": "yes", "maxmemory-policy": "noeviction", "port": "0"}
        client.set("kept", "yes")
        client.close()
    assert not Path(url.removeprefix("unix://")).exists()
    with running_server(settings) as url, Redis.from_url(url) as client:
        assert client.get("kept") == b"yes"


def test_a_second_caller_shares_the_server(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    with running_server(settings) as url:
        with running_server(settings) as shared:
            assert shared == url
        with Redis.from_url(url) as client:
            assert client.ping(), "it goes on when the second caller leaves"


def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    with (
        running_server(Settings(data_dir=tmp_path / ("long" * 30))) as url,
        Redis.from_url(url) as client,
    ):
        assert client.ping()


def test_a_server_that_fails_to_start_names_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerUnavailable, match=r"server\.log"),
        running_server(Settings(data_dir=tmp_path, redis_binary=Path("/bin/false"))),
    ):
        pass
