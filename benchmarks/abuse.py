"""Runs every attack of :mod:`benchmarks.abuse_attacks` and measures its effect on other tenants.

    python -m benchmarks.abuse --out benchmarks/results/abuse.json

A service of real processes with API keys. One tenant attacks from a process of its own; another,
the victim, submits a small picture ten times a second, and a probe asks ``/livez`` twenty times a
second. Printed for each attack: the 99th percentile of both, beside the quiet service's, and the
peak memory of API, decoders and store. All processes share the machine's cores; the attacker's has
the lowest priority, as it would run elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import httpx
from redis import Redis

from benchmarks import service_report
from benchmarks.abuse_attacks import ATTACKS, DENOISE, picture
from benchmarks.http_load import spread
from service.access.keys import KeyStore, Scope, new_key
from service.jobs import WorkerInfo, WorkerRegistry
from service.launch.embedded_server import running_server
from service.launch.processes import api_command, free_port
from service.launch.supervisor import process
from service.settings import Settings

SUBMIT_SECONDS, PROBE_SECONDS = 0.1, 0.05
MAX_RATIO, MAX_LIVEZ_MS, MAX_API_MB = 4.0, 100.0, 300.0
"""Maximum allowed values."""
BOTH: frozenset[Scope] = frozenset({"read", "write"})


class Watch:
    """Peak memory of the service's processes, in MB, since the last :meth:`reset`."""

    def __init__(self, api: int, store: int) -> None:
        self.api = api
        self.store = store
        self.decoders = 0.0

    def reset(self) -> None:
        """Resets the measurement."""
        self.decoders = 0.0
        for pid in (self.api, self.store):
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def sample(self) -> None:
        """Memory of all decoders together; they start and exit during an attack."""
        self.decoders = max(
            self.decoders, sum(service_report.memory_mb(pid) for pid in _below(self.api))
        )

    def peaks(self) -> dict[str, float]:
        """By process."""
        return {
            "api_mb": round(service_report.memory_mb(self.api, "VmHWM")),
            "decoders_mb": round(self.decoders),
            "store_mb": round(service_report.memory_mb(self.store, "VmHWM")),
        }


def _below(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found + [grandchild for child in found for grandchild in _below(child)]


async def observe(url: str, token: str, seconds: float, watch: Watch) -> dict[str, Any]:
    """Measures the victim's and the probe's latencies for some seconds."""
    over = time.monotonic() + seconds
    submitted: list[float] = []
    probed: list[float] = []
    refused: list[int] = []
    image = {"image": picture(64, 64, "PNG")}
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as victim,
        httpx.AsyncClient(base_url=url, timeout=60) as probe,
    ):

        async def submit() -> None:
            while time.monotonic() < over:
                started = time.perf_counter()
                answer = await victim.post(
                    "/v1/restore", files=image, data={"spec": json.dumps(DENOISE)}
                )
                submitted.append(time.perf_counter() - started)
                if answer.status_code != 202:
                    refused.append(answer.status_code)
                await asyncio.sleep(SUBMIT_SECONDS)

        async def ask() -> None:
            while time.monotonic() < over:
                started = time.perf_counter()
                (await probe.get("/livez")).raise_for_status()
                probed.append(time.perf_counter() - started)
                watch.sample()
                await asyncio.sleep(PROBE_SECONDS)

        await asyncio.gather(submit(), ask())
    return {
        "submission": spread(submitted),
        "submissions": len(submitted),
        "refused": len(refused),
        "livez": spread(probed),
        **watch.peaks(),
    }


@contextlib.contextmanager
def sleeper() -> Iterator[str]:
    """A URL whose server accepts connections and never responds."""
    with socket.create_server(("127.0.0.9", 0), backlog=1000) as silent:
        yield f"http://127.0.0.9:{silent.getsockname()[1]}/photo.jpg"


@contextlib.contextmanager
def service(folder: Path) -> Iterator[tuple[Settings, str, int, dict[str, str]]]:
    """Store, API, and the registration of a worker that computes nothing."""
    base = Settings(
        data_dir=folder,
        artifacts_dir=folder / "artifacts",
        auth="keys",
        image_urls=True,
        egress_allow=[IPv4Network("127.0.0.0/8")],
        max_queued=100_000,
        max_backlog_seconds=0,
    )
    with contextlib.ExitStack() as exits:
        settings = base.model_copy(update={"redis_url": exits.enter_context(running_server(base))})
        redis = exits.enter_context(Redis.from_url(settings.redis_url))
        tokens = {}
        for name in ("attacker", "victim"):
            tokens[name], key = new_key(name, BOTH)
            KeyStore(redis).add(key)
        over = threading.Event()
        threading.Thread(target=_register, args=(redis, over), daemon=True).start()
        exits.callback(over.set)
        port = free_port()
        api = exits.enter_context(
            process("API", api_command("127.0.0.1", port), settings, folder / "log")
        )
        url = f"http://127.0.0.1:{port}"
        while True:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{url}/livez", timeout=5).raise_for_status()
                break
            time.sleep(0.1)
        yield settings, url, api.pid, tokens


def _register(redis: Redis, over: threading.Event) -> None:
    facts = {"max_pixels": 512 * 512, "job_bytes": 10**9, "token_bytes": 1}
    worker = WorkerInfo(
        name="idle", prior="embedded", device="cpu", seconds_per_token=1e-4, **facts
    )
    registry = WorkerRegistry(redis)
    registry.renew(worker)
    while not over.wait(2):
        registry.renew(worker)


def measure(seconds: float, names: list[str]) -> dict[str, Any]:
    """Measures without an attack first, then under every attack, each on a service of its own."""
    print(HEADER, flush=True)
    found = {}
    for name in ["quiet", *names]:
        with tempfile.TemporaryDirectory(prefix="aps-abuse-") as folder:
            row = _measured(Path(folder), seconds, name if name in ATTACKS else None)
        found[name] = row
        quiet = found["quiet"]["submission"]["p99_ms"]
        row["ratio"] = round(row["submission"]["p99_ms"] / quiet, 2)
        print(line(name, row), flush=True)
    return found


def _measured(folder: Path, seconds: float, attack: str | None) -> dict[str, Any]:
    with service(folder) as (settings, url, api, tokens), sleeper() as silent:
        with Redis.from_url(settings.redis_url) as redis:
            store = redis.info("server")["process_id"]
        watch = Watch(api, store)
        asyncio.run(observe(url, tokens["victim"], 2, watch))  # warm
        watch.reset()
        if attack is None:
            return asyncio.run(observe(url, tokens["victim"], seconds, watch))
        command = [sys.executable, "-m", "benchmarks.abuse_attacks", attack, url]
        command += [tokens["attacker"], silent, str(seconds + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
            time.sleep(2)  # it is under way
            row = asyncio.run(observe(url, tokens["victim"], seconds, watch))
            said, _ = attacker.communicate()
        return {**row, "attacker_got": json.loads(said or b"{}")}


HEADER = (
    f"{'attack':28}{'victim p99':>12}{'ratio':>7}{'refused':>9}{'/livez p99':>12}"
    f"{'API':>8}{'decoders':>11}{'store':>9}"
)


def line(name: str, row: dict[str, Any]) -> str:
    """Formats a row of the table."""
    kept = (
        row["ratio"] <= MAX_RATIO
        and row["livez"]["p99_ms"] <= MAX_LIVEZ_MS
        and row["api_mb"] <= MAX_API_MB
    )
    return (
        f"{name:28}{row['submission']['p99_ms']:>9.1f} ms{row['ratio']:>7.2f}{row['refused']:>9}"
        f"{row['livez']['p99_ms']:>9.1f} ms{row['api_mb']:>5.0f} MB{row['decoders_mb']:>8.0f} MB"
        f"{row['store_mb']:>6.0f} MB{'' if kept else '  MISSED'}"
    )


def main() -> None:
    parser = service_report.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="of each attack")
    parser.add_argument("--only", nargs="*", choices=list(ATTACKS), default=list(ATTACKS))
    arguments = parser.parse_args()
    origin = service_report.origin("benchmarks.abuse")
    found = measure(arguments.seconds, arguments.only)
    service_report.write({**origin, "attacks": found}, arguments.out)


if __name__ == "__main__":
    main()
