"""Latencies of single jobs: event streams, cancellation, overhead of the service, first webhook."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import statistics
import threading
import time
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
from PIL import Image

from benchmarks.http_load import spread

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
