"""Webhooks through all real processes, verified by the example receiver."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from service.launch.processes import free_port
from tests.stack import Stack, png

QUICK = {"steps": 2, "inner_steps": 1}


@pytest.fixture
def receiver(stack: Stack) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    [secret] = stack.http.get("/v1/webhooks/secrets").raise_for_status().json()["secrets"]
    port = free_port()
    command = [sys.executable, "examples/webhook_receiver.py", str(port)]
    with subprocess.Popen(
        command, env={**os.environ, "WEBHOOK_SECRET": secret}, stdout=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 30
        while not listening(port):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/", process
        process.kill()


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def submit(stack: Stack, webhook: object, **options: str):
    spec = {"operator": {"type": "denoise"}, "sigma": 0.1, "sampler": QUICK}
    return stack.http.post(
        "/v1/restore",
        files={"image": png()},
        data={"spec": json.dumps(spec), "webhook": json.dumps(webhook), **options},
    )


def test_a_receiver_gets_start_and_end_and_redeliveries(stack: Stack, receiver) -> None:
    url, process = receiver
    answer = submit(
        stack, {"url": url, "events": ["job.started", "job.completed"]}, priority="high"
    )
    assert answer.status_code == 202, answer.text
    job = answer.json()
    assert job["priority"] == "high"
    lines = [process.stdout.readline().split() for _ in range(2)]
    started = next(line for line in lines if line[0] == "job.started")
    completed = next(line for line in lines if line[0] == "job.completed")
    assert started[1] == completed[1] == job["id"]
    assert completed[2] == "succeeded"
    assert f"/v1/jobs/{job['id']}/artifacts/result.png" in completed

    deadline = time.monotonic() + 10
    while len(sent := stack.http.get(f"/v1/jobs/{job['id']}/webhooks").json()) < 2 or any(
        delivery["state"] == "pending" for delivery in sent
    ):
        assert time.monotonic() < deadline, sent
        time.sleep(0.05)
    assert [
        (delivery["type"], delivery["state"], len(delivery["attempts"])) for delivery in sent
    ] == [
        ("job.started", "delivered", 1),
        ("job.completed", "delivered", 1),
    ]
    again = stack.http.post(f"/v1/webhooks/deliveries/{sent[1]['id']}/redeliver")
    assert (again.status_code, again.json()["state"]) == (202, "pending")
    while len(stack.http.get(f"/v1/jobs/{job['id']}/webhooks").json()[1]["attempts"]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert stack.http.post("/v1/webhooks/deliveries/absent/redeliver").status_code == 404


@pytest.mark.parametrize(
    ("webhook", "code"),
    [
        ({"url": "ftp://example.org/"}, "url_not_allowed"),
        ({"url": "https://user:pass@example.org/"}, "url_not_allowed"),
        ({"url": "http://["}, "url_not_allowed"),
        ({"url": "https://x/", "events": ["job.exploded"]}, "invalid_spec"),
        ({}, "invalid_spec"),
    ],
)
def test_invalid_webhooks_are_rejected(stack: Stack, webhook, code: str) -> None:
    answer = submit(stack, webhook)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
