"""An API of real processes that wants keys, with an attacker's and a victim's; nothing computes."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from apis import register_idle_worker, running_api, wait_until_it_answers
from redis import Redis
from stack import free_port

from service.access.keys import KeyStore, Scope, new_key
from service.launch.embedded_server import running_server
from service.launch.processes import api_command
from service.launch.supervisor import process
from service.settings import Settings

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
        yield Target(settings, f"http://127.0.0.1:{port}", log, api.pid, tokens)


def _renew(settings: Settings, over: threading.Event) -> None:
    register_idle_worker(settings)
    while not over.wait(2):
        register_idle_worker(settings)


@pytest.fixture(scope="package")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One service for all that leave it whole."""
    networks = ["127.0.0.0/8"]
    with attacked(
        tmp_path_factory.mktemp("abuse"), image_urls=True, egress_allow=networks, fetch_seconds=3
    ) as target:
        yield target


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[..., Any]:
    """A service of the test's own, to break."""
    return lambda **changes: attacked(tmp_path, **changes)


@pytest.fixture(scope="session")
def fake_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that moves the wall clock of the process that loads it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("clock") / "fake_clock.so"
    source = Path(__file__).with_name("fake_clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture(scope="package")
def open_api(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Another API of the same store, on loopback and without keys."""
    log = tmp_path_factory.mktemp("open") / "log"
    with running_api(target.settings, log, auth="auto") as http:
        yield str(http.base_url)
