"""After running jobs, all metrics exported by the API and a worker have values."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

import service.telemetry.metrics
import worker.telemetry
from tests.stack import Stack, png

QUICK = {"steps": 2, "inner_steps": 1}
ELSEWHERE = {
    "aps_oom": "no memory runs out here: tests/faults",
    "aps_leases_lost": "nobody is fenced out here: tests/faults",
    "aps_model_fallback": "compiling does not fail here: tests/worker/test_start.py",
    "aps_device_healthy": "of a GPU: tests/worker/test_device.py",
    "aps_gpu_memory_bytes": "of a GPU: tests/gpu",
}


def scraped(url: str) -> dict[str, Metric]:
    return {
        family.name: family
        for family in text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
    }


def value(family: Metric, **labels: str) -> float:
    """Sum of the counts or values of all series with these labels."""
    counted = [
        sample
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_sum", "_created"))
    ]
    return sum(sample.value for sample in counted if labels.items() <= sample.labels.items())


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def declared(module: Any) -> set[str]:
    return {metric._name for metric in vars(module).values() if hasattr(metric, "_labelnames")}


@pytest.fixture
def receiver() -> Any:
    class Accepting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Accepting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_every_metric_is_set_by_real_work(stack: Stack, receiver: str) -> None:
    exporter = f"http://127.0.0.1:{stack.settings.metrics_port}"
    # a picture that is refused, a job with a webhook to its end, and one canceled before a worker
    # has heard of it
    assert (
        stack.http.post(
            "/v1/files", content=b"no picture", headers={"Content-Type": "image/png"}
        ).status_code
        == 422
    )
    spec = {
        "operator": {"type": "denoise"},
        "sigma": 0.1,
        "sampler": QUICK,
        "webhook": {"url": receiver},
    }
    sha256 = stack.http.post(
        "/v1/files", content=png(), headers={"Content-Type": "image/png"}
    ).json()["sha256"]
    job = stack.http.post("/v1/restore", json={**spec, "image": f"sha256:{sha256}"}).json()
    assert stack.wait(job["id"])["state"] == "succeeded"
    # one that loses its worker after a step, which another continues
    long = stack.submit(sampler={"steps": 40, "inner_steps": 3})
    events = stack.events(long["id"])
    next(event for event in events if event[1] == "progress")
    assert value(scraped(stack.url)["aps_sse_clients"]) == 1
    assert value(scraped(stack.url)["aps_jobs_running"], prior="embedded") == 1
    waiting = stack.submit(sampler=QUICK)
    stack.http.post(f"/v1/jobs/{waiting['id']}/cancel")
    stack.kill_workers()
    stack.ensure_worker()
    assert [event[1] for event in events][-1] == "done"
    # and one whose message vanishes
    with Redis.from_url(stack.settings.redis_url) as redis:
        messages = stack.settings.message_list("embedded")
        os.kill(stack.workers[0].pid, signal.SIGSTOP)
        try:
            lost = stack.submit(sampler=QUICK)

            def republished() -> bool:
                redis.delete(messages)  # if the frozen worker has not got it
                redis.hset(f"aps:job:{lost['id']}", "announced_at", 1)
                return value(scraped(stack.url)["aps_republished"], prior="embedded") > 0

            until(republished)
        finally:
            os.kill(stack.workers[0].pid, signal.SIGCONT)
    stack.wait(lost["id"])
    until(lambda: value(scraped(stack.url)["aps_sse_clients"]) == 0)
    until(lambda: value(scraped(stack.url)["aps_webhook_deliveries"], outcome="delivered") > 0)

    api, child = scraped(stack.url), scraped(exporter)
    ended = api["aps_jobs"]
    for state in ("succeeded", "canceled"):
        assert value(ended, prior="embedded", task="restore", status=state) >= 1
    assert {sample.labels["outcome"] for sample in api["aps_decode_seconds"].samples} >= {
        "read",
        "error",
    }
    assert value(api["aps_leases_expired"], prior="embedded") >= 1
    assert value(child["aps_attempts"], reason="lost") == 1
    assert value(child["aps_resumes"], prior="embedded", reason="lost") == 1
    for families, module in ((api, service.telemetry.metrics), (child, worker.telemetry)):
        for name in declared(module) - set(ELSEWHERE) - {"aps_sse_clients", "aps_steps_wasted"}:
            assert value(families[name]) > 0, f"{name} is declared, and never set"
    assert value(child["aps_steps_wasted"], reason="lost") <= 1
    assert value(child["aps_model_state"], state="ready") == len(stack.settings.priors)
