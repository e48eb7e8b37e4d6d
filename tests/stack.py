"""Test access to the running service, for clients and operators."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from service.launch.processes import worker_command
from service.launch.supervisor import process
from service.settings import Settings

TIMEOUT = 240
"""Seconds to wait for a worker. Loading a prior takes 3 s on an idle machine, up to a minute on a
busy one.
"""


def png(width: int = 64, height: int = 64, mode: str = "RGB", image_format: str = "PNG") -> bytes:
    """A deterministic smooth picture as PNG."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    planes = [127 + 100 * np.sin(x / (5 + c) + c) * np.cos(y / (7 + c)) for c in range(3)]
    image = Image.fromarray(np.stack(planes, -1).astype(np.uint8)).convert(mode)
    out = io.BytesIO()
    image.save(out, image_format)
    return out.getvalue()


def uri(data: bytes) -> str:
    """Encodes a file as a data URI."""
    return "data:image/png;base64," + base64.b64encode(data).decode()


def stream_events(
    http: httpx.Client, job_id: str, after: str | None = None
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields (id, type, data) of each event until the stream ends or breaks."""
    headers = {"Last-Event-ID": after} if after else {}
    with http.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["Cache-Control"] == "no-store"
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            if not line and "data" in fields:
                yield fields["id"], fields["event"], json.loads(fields["data"])
                fields = {}
            elif line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value


@dataclass
class Stack:
    """The running service, with methods of a client and an operator."""

    settings: Settings
    url: str
    http: httpx.Client
    log: Path
    exits: ExitStack
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Starts a worker and waits until it is registered."""
        before = {worker["name"] for worker in self.live_workers()}
        worker = self.exits.enter_context(
            process("worker", worker_command(self.settings), self.settings, self.log)
        )
        self.workers.append(worker)
        deadline = time.monotonic() + TIMEOUT
        while not {entry["name"] for entry in self.live_workers()} - before:
            assert worker.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.25)
        return worker

    def ensure_worker(self) -> None:
        """Makes sure that at least one worker runs."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        if not self.workers:
            self.start_worker()

    def kill_workers(self) -> None:
        """Sends SIGKILL to all parents; their children exit with them."""
        for worker in self.workers:
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait()
        self.workers = []

    def live_workers(self) -> list[dict[str, Any]]:
        """Workers in the registry."""
        workers: list[dict[str, Any]] = (
            self.http.get("/v1/capabilities").raise_for_status().json()["workers"]
        )
        return workers

    def submit(self, image: bytes | None = None, **spec: Any) -> dict[str, Any]:
        """Submits a small restoration."""
        spec = {"prior": "embedded", "operator": {"type": "denoise"}, "sigma": 0.1, **spec}
        answer = self.http.post(
            "/v1/restore", files={"image": image or png()}, data={"spec": json.dumps(spec)}
        )
        assert answer.status_code == 202, answer.text
        job: dict[str, Any] = answer.json()
        return job

    def job(self, job_id: str) -> dict[str, Any]:
        """Fetches the job."""
        job: dict[str, Any] = self.http.get(f"/v1/jobs/{job_id}").raise_for_status().json()
        return job

    def events(
        self, job_id: str, after: str | None = None
    ) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """The job's events as (id, type, data), until the stream closes."""
        return stream_events(self.http, job_id, after)

    def wait(self, job_id: str, seconds: float = TIMEOUT) -> dict[str, Any]:
        """Waits until the job has ended and returns it."""
        deadline = time.monotonic() + seconds
        while (job := self.job(job_id))["state"] in ("queued", "running"):
            assert time.monotonic() < deadline, (job, self.log.read_text()[-3000:])
            time.sleep(0.05)
        return job

    def artifact(self, job_id: str, name: str) -> bytes:
        """Downloads a file of the job."""
        return self.http.get(f"/v1/jobs/{job_id}/artifacts/{name}").raise_for_status().content
