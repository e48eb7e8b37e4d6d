"""The job store's command lines of compose and Kubernetes, run with a real server."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis import Redis
from redis.exceptions import AuthenticationError

from service.launch.embedded_server import server_binary
from service.settings import Settings

ROOT = Path(__file__).parents[2]
PASSWORD = "letters"


def arguments(where: str) -> list[str]:
    """Arguments of the server command, without the program name."""
    if where == "compose":
        program, *words = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"][
            "redis"
        ]["command"]
    else:
        pod: dict[str, Any] = next(
            yaml.safe_load_all((ROOT / "k8s" / "base" / "redis.yaml").read_text())
        )["spec"]["template"]["spec"]
        (program,), words = pod["containers"][0]["command"], pod["containers"][0]["args"]
    assert program == "valkey-server"
    return [word.replace("$(REDIS_PASSWORD)", PASSWORD) for word in words]


@contextmanager
def server(words: list[str], folder: Path, password: str | None) -> Iterator[Redis]:
    """Starts the server on a socket in ``folder`` and yields a client."""
    place = ["--port", "0", "--unixsocket", "s.sock", "--dir", str(folder), "--logfile", "log"]
    running = subprocess.Popen([str(server_binary(Settings())), *words, *place], cwd=folder)
    try:
        deadline = time.monotonic() + 20
        while not (folder / "s.sock").exists():
            assert running.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with Redis(unix_socket_path=str(folder / "s.sock"), password=password) as client:
            yield client
    finally:
        running.terminate()
        running.wait()


@pytest.mark.parametrize(("where", "password"), [("compose", None), ("k8s", PASSWORD)])
def test_the_store_is_durable_and_does_not_evict(
    where: str, password: str | None, tmp_path: Path
) -> None:
    with server(arguments(where), tmp_path, password) as client:
        shown = {
            name: client.config_get(name)[name]
            for name in ("appendonly", "appendfsync", "save", "maxmemory-policy")
        }
    assert shown == {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
    }


def test_the_store_of_the_cluster_requires_the_password(tmp_path: Path) -> None:
    with server(arguments("k8s"), tmp_path, None) as client, pytest.raises(AuthenticationError):
        client.ping()
