"""One trace spans client, API and the worker's steps, as received by an OTLP collector; off by
default.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from service.launch.embedded_server import running_server
from service.launch.processes import worker_command
from service.launch.supervisor import process
from service.settings import Settings
from tests.apis import running_api
from tests.stack import png

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(HTTPServer):
    """An OTLP collector over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.spans: list[tuple[str, Span]] = []


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        import gzip

        body = self.rfile.read(int(self.headers["content-length"]))
        body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = next(
                each.value.string_value
                for each in resource.resource.attributes
                if each.key == "service.name"
            )
            assert isinstance(self.server, Collector)
            self.server.spans += [
                (service, span) for scope in resource.scope_spans for span in scope.spans
            ]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield server
        server.shutdown()


def test_submission_queue_job_and_steps_are_one_trace(collector: Collector, tmp_path: Path) -> None:
    base = Settings(
        data_dir=tmp_path, artifacts_dir=tmp_path / "artifacts", priors=["embedded"], threads=1
    )
    with running_server(base) as url:
        settings = base.model_copy(update={"redis_url": url})
        with (
            running_api(settings, tmp_path / "log") as http,
            process("worker", worker_command(settings), settings, tmp_path / "log"),
        ):
            deadline = time.monotonic() + 240
            while http.get("/readyz").status_code != 200:
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.1)
            spec = {"operator": {"type": "denoise"}, "sampler": {"steps": 3, "inner_steps": 1}}
            headers = {"traceparent": f"00-{TRACE}-{CALLER}-01", "Prefer": "wait=60"}
            job = http.post(
                "/v1/restore",
                files={"image": png()},
                data={"spec": json.dumps(spec)},
                headers=headers,
            ).json()
            assert job["state"] == "succeeded"
            while len(collector.spans) < 6:
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.05)
    found = {span.name: (service, span) for service, span in collector.spans}
    assert [
        (name, found[name][0]) for name in ("submit restore", "queue", "job restore", "step")
    ] == [
        ("submit restore", "aps-api"),
        ("queue", "aps-worker"),
        ("job restore", "aps-worker"),
        ("step", "aps-worker"),
    ]
    assert {span.trace_id.hex() for _, span in collector.spans} == {TRACE}
    submit, computed = found["submit restore"][1], found["job restore"][1]
    assert submit.parent_span_id.hex() == CALLER
    assert job["traceparent"] == f"00-{TRACE}-{submit.span_id.hex()}-01"
    assert found["queue"][1].parent_span_id == computed.parent_span_id == submit.span_id
    steps = [span for _, span in collector.spans if span.name == "step"]
    assert [span.parent_span_id for span in steps] == [computed.span_id] * 3
    assert {each.key: each.value.string_value for each in computed.attributes}[
        "aps.outcome"
    ] == "succeeded"


@pytest.mark.parametrize(
    ("asked", "said"),
    [("otlp", "OpenTelemetry is not installed"), ("jaeger", "is not supported here"), ("", "")],
)
def test_missing_packages_are_reported_once_if_tracing_is_on(asked: str, said: str) -> None:
    program = f"""
import logging, os, sys
logging.basicConfig(stream=sys.stdout)
os.environ.update({{"OTEL_TRACES_EXPORTER": {asked!r}}} if {asked!r} else {{}})
sys.modules["opentelemetry"] = None
from service.telemetry import tracing
tracing.configure("api")
with tracing.span("x", "parent") as span:
    assert span.traceparent == "parent"
tracing.stop()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("\n") == bool(said)
    assert said in done.stdout
