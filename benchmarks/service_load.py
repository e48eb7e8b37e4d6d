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

import argparse
import asyncio
import contextlib
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
from PIL import Image

from benchmarks.http_load import CONNECTIONS, Request, form, get, hammer, post, spread
from benchmarks.soak import cpu, free_port
from service.jobs import open_store
from service.launch.embedded_server import running_server
from service.launch.processes import api_command, wait_ready, worker_command
from service.launch.supervisor import process
from service.settings import Settings

WARM_UP = 50
"""Number of warm-up requests."""
ROUNDS = 3
"""Rounds that alternate between baseline and submissions; the one with the median ratio is used."""
PACE = 100
"""Submissions per second in runs at a fixed rate."""
QUICK = {"operator": {"type": "denoise"}, "sigma": 0.1, "sampler": {"steps": 4, "inner_steps": 1}}
LONG = {"operator": {"type": "denoise"}, "sigma": 0.1, "sampler": {"steps": 128, "inner_steps": 20}}


def jpeg(side: int, size: int = 0, seed: int = 0) -> bytes:
    """Creates a JPEG of ``side`` pixels with enough noise to exceed ``size`` bytes."""
    y, x = np.mgrid[0:side, 0:side]
    noise = np.random.default_rng(seed).normal(0, 30 if size else 2, (side, side, 3))
    planes = (
        np.stack([127 + 90 * np.sin(x / (9 + c)) * np.cos(y / (7 + c)) for c in range(3)], -1)
        + noise
    )
    out = io.BytesIO()
    Image.fromarray(planes.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=80)
    data = out.getvalue()
    assert len(data) >= size, len(data)
    return data


async def follow(url: str, job_id: str, clients: int) -> dict[str, Any]:
    """Opens event streams of one job; returns how many clients see its end, and their latency.

    Plain connections: closing hundreds of streams keeps an HTTP library busy for a second, in which
    it does not read the others.
    """
    ends: list[float] = []
    place = urlsplit(url)
    head = f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n"

    async def one() -> None:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        with contextlib.closing(writer):
            writer.write(head.encode())
            async for line in reader:
                if line == b"event: done\r\n":
                    ends.append(time.time())
                    return

    outcomes = await asyncio.gather(*(one() for _ in range(clients)), return_exceptions=True)
    failures = [repr(outcome) for outcome in outcomes if isinstance(outcome, Exception)]
    finished = httpx.get(f"{url}/v1/jobs/{job_id}").json()["finished_at"]
    ended = datetime.fromisoformat(finished).timestamp()
    lag = spread([end - ended for end in ends]) if ends else {}
    return {"clients": clients, "saw_the_end": len(ends), "failures": failures[:3], "lag": lag}


def cancellation(http: httpx.Client, times: int) -> dict[str, Any]:
    """Time from cancel request to the end of a running job, and duration of its steps."""
    seconds, steps = [], []
    for _ in range(times):
        job = (
            http.post("/v1/restore", files={"image": jpeg(64)}, data={"spec": json.dumps(LONG)})
            .raise_for_status()
            .json()
        )
        while (now := http.get(job["urls"]["self"]).json())["progress"] is None or now["progress"][
            "step"
        ] < 2:
            time.sleep(0.02)
        started = time.perf_counter()
        http.post(job["urls"]["cancel"]).raise_for_status()
        while (now := http.get(job["urls"]["self"]).json())["state"] == "running":
            time.sleep(0.005)
        seconds.append(time.perf_counter() - started)
        steps.append(now["progress"]["seconds"])
    return {
        "times": times,
        **spread(seconds),
        "step_p50_ms": round(1000 * statistics.median(steps), 1),
    }


def overhead(http: httpx.Client, times: int) -> dict[str, Any]:
    """Time of a job in addition to sampling, and delay of the first webhook after its end."""
    told: dict[str, float] = {}

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            told[body["data"]["id"]] = time.time()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    extra, webhooks = [], []
    for seed in range(times):
        fields = {
            "spec": json.dumps({**QUICK, "seed": seed}),
            "webhook": json.dumps({"url": f"http://127.0.0.1:{receiver.server_port}/"}),
        }
        started = time.perf_counter()
        answer = http.post(
            "/v1/restore", files={"image": jpeg(64)}, data=fields, headers={"Prefer": "wait=60"}
        )
        job = answer.raise_for_status().json()
        extra.append(time.perf_counter() - started - job["metrics"]["sampling_seconds"])
        ended = time.time()
        while job["id"] not in told and time.time() < ended + 30:
            time.sleep(0.002)
        webhooks.append(told.get(job["id"], ended + 30) - ended)
    receiver.shutdown()
    return {
        "jobs": times,
        "beyond_sampling": spread(extra),
        "first_webhook_after_the_answer": spread(webhooks),
    }


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024, 1)


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
        found["api_memory_mb"] = memory_mb(api.pid)
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--clients", type=int, default=500, help="event streams at a time")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="aps-load-") as folder:
        found = measure(Path(folder), arguments.requests, arguments.clients)
    report = {
        "command": "python -m benchmarks.service_load " + " ".join(sys.argv[1:]),
        "nice": os.nice(0),
        "machine": {
            "cpu": cpu(),
            "cores_allowed": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            "load_average_before": load_before,
        },
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip(),
        "connections": CONNECTIONS,
        **found,
    }
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
