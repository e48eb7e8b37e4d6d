"""A service under attack: store and API as processes, API keys for an attacker and a victim."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from redis import Redis
from redis.exceptions import RedisError

from service.access.keys import KeyStore, Scope, new_key
from service.launch.embedded_server import running_server
from service.launch.processes import api_command, free_port
from service.launch.supervisor import process
from service.settings import Settings
from tests.apis import register_idle_worker, wait_until_it_answers

BOTH: frozenset[Scope] = frozenset({"read", "write"})


@dataclass
class Target:
    """A service under attack."""

    settings: Settings
    url: str
    log: Path
    pid: int
    tokens: dict[str, str]

    def client(self, name: str = "", seconds: float = 60) -> httpx.Client:
        """With the key of ``name``, if there is one."""
        token = self.tokens.get(name)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=seconds)

    def peak_mb(self) -> float:
        """Most memory the API process has had, in MB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@contextmanager
def attacked(folder: Path, **changes: Any) -> Iterator[Target]:
    """A store, an API and a worker's registration that is renewed."""
    environment = changes.pop("environment", {})
    base = Settings(data_dir=folder, artifacts_dir=folder / "artifacts", auth="keys", **changes)
    with ExitStack() as exits:
        settings = base.model_copy(update={"redis_url": exits.enter_context(running_server(base))})
        tokens = {}
        with Redis.from_url(settings.redis_url) as redis:
            for name in ("attacker", "victim"):
                tokens[name], key = new_key(name, BOTH)
                KeyStore(redis).add(key)
        over = threading.Event()
        renewal = threading.Thread(target=_renew, args=(settings, over), daemon=True)
        renewal.start()
        exits.callback(renewal.join)
        exits.callback(over.set)
        port, log = free_port(), folder / "log"
        command = api_command("127.0.0.1", port)
        api = exits.enter_context(process("API", command, settings, log, **environment))
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            wait_until_it_answers(http, api, log)
        yield Target(
            settings=settings, url=f"http://127.0.0.1:{port}", log=log, pid=api.pid, tokens=tokens
        )


def _renew(settings: Settings, over: threading.Event) -> None:
    register_idle_worker(settings)
    while not over.wait(2):
        with suppress(RedisError):  # a test has just killed the store
            register_idle_worker(settings)
