"""Throughput, latency and memory of the running service under load, over loopback.

    python -m benchmarks.service_load --out benchmarks/results/service-load.json

Measures, with 8 connections: submissions that name a stored picture, with idle and busy workers, at
maximum rate (compared with a minimal FastAPI + Redis + Celery application in the same run) and at
100 per second; submissions that each upload a new 200 kB JPEG; polling. It also measures event
streams of many clients, cancellation, the first webhook, the overhead of the service per job, and
the memory of the API. Client and servers share the machine's cores, so the results describe the
whole system, not the API alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks import service_report
from benchmarks.http_load import CONNECTIONS, Request, form, get, hammer, post
from benchmarks.job_latency import LONG, QUICK, cancellation, follow, jpeg, overhead
from service.jobs import open_store
from service.launch.embedded_server import running_server
from service.launch.processes import api_command, free_port, wait_ready, worker_command
from service.launch.supervisor import process
from service.settings import Settings

WARM_UP = 50
"""Number of warm-up requests."""
ROUNDS = 3
"""Rounds that alternate between baseline and submissions; the one with the median ratio is used."""
PACE = 100
"""Submissions per second in runs at a fixed rate."""


@contextlib.contextmanager
def floor(settings: Settings, log: Path) -> Iterator[str]:
    """Runs the minimal application."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "benchmarks.floor:app",
        "--port",
        str(port),
        "--no-access-log",
    ]
    with process("floor", command, settings, log):
        url = f"http://127.0.0.1:{port}"
        while True:
            with contextlib.suppress(httpx.TransportError):
                httpx.post(f"{url}/floor", json={}, timeout=5)
                break
            time.sleep(0.1)
        hammer(url, WARM_UP, lambda _: post("/floor", QUICK))
        yield url


def measure(folder: Path, requests: int, clients: int) -> dict[str, Any]:
    base = Settings(
        data_dir=folder,
        artifacts_dir=folder / "artifacts",
        threads=1,
        webhook_allow_private=True,
        max_backlog_seconds=0,
    )
    log, port = folder / "log", free_port()
    url = f"http://127.0.0.1:{port}"
    found: dict[str, Any] = {}
    with contextlib.ExitStack() as exits:
        settings = base.model_copy(update={"redis_url": exits.enter_context(running_server(base))})
        api = exits.enter_context(process("API", api_command("127.0.0.1", port), settings, log))
        worker = exits.enter_context(process("worker", worker_command(settings), settings, log))
        wait_ready(url, {"API": api, "worker": worker})
        http = exits.enter_context(httpx.Client(base_url=url, timeout=120))
        store, _ = open_store(settings)
        found["overhead"] = overhead(http, 20)
        found["cancel"] = cancellation(http, 5)
        job = http.post(
            "/v1/restore", files={"image": jpeg(64)}, data={"spec": json.dumps(LONG)}
        ).json()
        found["event_streams"] = asyncio.run(follow(url, job["id"], clients))
        found["poll"] = hammer(url, requests * 2, lambda _: get(f"/v1/jobs/{job['id']}"))

        stored = (
            http.post("/v1/files", content=jpeg(32), headers={"Content-Type": "image/jpeg"})
            .raise_for_status()
            .json()
        )

        def naming(spec: dict[str, Any]) -> Callable[[int], Request]:
            return lambda _: post("/v1/restore", {**spec, "image": f"sha256:{stored['sha256']}"})

        http.post(
            "/v1/restore", files={"image": jpeg(64)}, data={"spec": json.dumps(LONG)}
        ).raise_for_status()
        hammer(url, WARM_UP, naming(LONG))
        found["submit_busy_worker"] = {
            "most": hammer(url, requests, naming(LONG)),
            "paced": hammer(url, requests, naming(LONG), PACE),
        }
        # from here on no worker runs; the previous one stays registered for a while
        worker.terminate()
        worker.wait()
        exits.enter_context(registered(settings))
        with floor(settings, log) as bare:
            rounds = [
                (
                    hammer(bare, requests * 2, lambda _: post("/floor", QUICK)),
                    hammer(url, requests * 2, naming(QUICK)),
                )
                for _ in range(ROUNDS)
            ]
            found["submit"] = {"paced": hammer(url, requests, naming(QUICK), PACE)}
        found["ratios_to_floor"] = [
            round(submit["per_second"] / bare["per_second"], 3) for bare, submit in rounds
        ]
        found["ratio_to_floor"] = statistics.median(found["ratios_to_floor"])
        found["floor"], found["submit"]["most"] = rounds[
            found["ratios_to_floor"].index(found["ratio_to_floor"])
        ]
        large = [jpeg(720, 200_000, seed) for seed in range(16)]
        found["submit_200kB_jpeg"] = hammer(
            url,
            requests,
            lambda number: form("/v1/restore", large[number % 16], {**QUICK, "working_size": 256}),
        )
        found["api_memory_mb"] = round(service_report.memory_mb(api.pid), 1)
        store.redis.close()
    return found


@contextlib.contextmanager
def registered(settings: Settings) -> Iterator[None]:
    """Registers a worker that takes no jobs, so that submissions are accepted but not run."""
    store, registry = open_store(settings)
    entry = next(worker for worker in registry.known())
    over = threading.Event()

    def renew() -> None:
        while not over.wait(2):
            registry.renew(entry)

    registry.renew(entry)
    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        store.redis.close()


def main() -> None:
    parser = service_report.parser(__doc__)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--clients", type=int, default=500, help="event streams at a time")
    arguments = parser.parse_args()
    origin = service_report.origin("benchmarks.service_load")
    with tempfile.TemporaryDirectory(prefix="aps-load-") as folder:
        found = measure(Path(folder), arguments.requests, arguments.clients)
    service_report.write({**origin, "connections": CONNECTIONS, **found}, arguments.out)


if __name__ == "__main__":
    main()
