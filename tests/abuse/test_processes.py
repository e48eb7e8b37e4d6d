"""Processes that exit or hang do no harm, and logs contain no secrets."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import socket
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis
from redis.exceptions import RedisError

from benchmarks.abuse_attacks import DENOISE
from service.jobs import ArtifactStore, new_job_id
from service.launch.embedded_server import running_server
from service.launch.processes import free_port
from service.settings import Settings
from tests.stack import png, uri
from worker import exporter


def killed(redis: Redis) -> int:
    """The store's process, killed."""
    process: int = redis.info("server")["process_id"]
    os.kill(process, signal.SIGKILL)
    return process


def test_an_embedded_store_that_is_killed_comes_back_with_its_data(tmp_path: Path) -> None:
    with running_server(Settings(data_dir=tmp_path)) as url, Redis.from_url(url) as redis:
        redis.set("kept", "yes")
        time.sleep(1.2)  # appendfsync everysec
        for _ in range(2):
            before, deadline = killed(redis), time.monotonic() + 60
            while True:
                with contextlib.suppress(RedisError):  # at first it is away, then it loads its data
                    if redis.info("server")["process_id"] != before:
                        assert redis.get("kept") == b"yes"
                        break
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_a_waiting_client_gets_its_jobs_location_when_the_store_is_killed(fresh: Any) -> None:
    with fresh() as target, target.client("victim") as http:
        body = {**DENOISE, "image": uri(png(32, 32))}
        answers: list[httpx.Response] = []
        waiting = threading.Thread(
            target=lambda: answers.append(
                http.post("/v1/restore", json=body, headers={"Prefer": "wait=30"})
            )
        )
        with Redis.from_url(target.settings.redis_url) as redis:
            waiting.start()
            deadline = time.monotonic() + 30
            while not redis.zcard("aps:jobs:victim"):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            time.sleep(0.5)
            process = redis.info("server")["process_id"]
            os.kill(process, signal.SIGKILL)
        waiting.join()
        [answer] = answers
        assert answer.status_code == 202, answer.text
        assert answer.headers["Location"] == answer.json()["urls"]["self"]


def test_an_idle_connection_to_a_workers_port_delays_no_probe() -> None:
    port = free_port()
    exporter.serve(port, lambda: None, exchange_seconds=1)
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
    silent[0].sendall(b"GET /livez HTTP/1.1\r\n")
    started = time.monotonic()
    for path, text in (("/livez", b"alive\n"), ("/readyz", b"ready\n")):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            assert answer.read() == text
    assert time.monotonic() - started < 5
    for connection in silent:
        connection.settimeout(20)
        assert connection.recv(1) == b"", "its time is up"
        connection.close()


def test_what_a_webhook_s_address_holds_is_neither_logged_nor_a_way_to_look_around(
    fresh: Any,
) -> None:
    with fresh() as target, target.client("victim") as http:
        jobs = {}
        for host in (
            "localhost",
            socket.gethostname(),
            "no-such-name.invalid",
            "metadata.internal",
        ):
            hook = {"url": f"https://{host}/hook/T0PSECRET?token=T0PSECRET"}
            body = {**DENOISE, "image": uri(png(32, 32)), "webhook": hook}
            if host == "localhost":  # tells nothing, as it is private everywhere
                problem = http.post("/v1/restore", json=body).json()
                [error] = problem["errors"]
                assert (problem["code"], error["pointer"]) == ("url_not_allowed", "/webhook/url")
                continue
            jobs[host] = http.post("/v1/restore", json=body).raise_for_status().json()
            http.post(jobs[host]["urls"]["cancel"]).raise_for_status()
        said = set()
        for job in jobs.values():
            deadline = time.monotonic() + 60
            while True:
                [delivery] = http.get(f"{job['urls']['self']}/webhooks").json()
                if delivery["attempts"]:
                    break
                assert time.monotonic() < deadline
                time.sleep(0.1)
            said.add(delivery["attempts"][0]["error"])
        assert said == {"its host does not lead to a public address"}
        assert "T0PSECRET" not in target.log.read_text()


def test_files_are_synced_before_they_are_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace

    def sync(file: int) -> None:
        seen.append("sync " + re.sub(r".*/", "", os.readlink(f"/proc/self/fd/{file}"))[:1])
        real_sync(file)

    def replace(self: Path, target: Path) -> Path:
        seen.append("name")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    store, job_id = ArtifactStore(tmp_path), new_job_id()
    store.put(job_id, "result.json", b"{}", "application/json")
    assert seen == ["sync .", "name", f"sync {job_id[0]}"]
    store.put(job_id, "preview-1.jpg", b"x", "image/jpeg", durable=False)
    assert seen[3:] == ["name"]
    store.put_upload(job_id, io.BytesIO(b"upload"), 64 * "0", ".png")
    store._syncs.shutdown()
    assert seen[4:] == ["name", "sync 0", f"sync {job_id[0]}"]


def test_the_documented_time_of_webhook_retries_is_the_default() -> None:
    pauses = Settings().webhook_retry_seconds
    said = Path(__file__).parents[2] / "docs/webhooks.md"
    assert f"within {sum(pauses) / 3600:.0f} hours" in said.read_text()
    assert len(pauses) == 9
    assert "nine times" in said.read_text()
