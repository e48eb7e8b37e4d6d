"""Clock jumps: those of the API and the workers have no effect, and the store's clock recovers."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from service.jobs import Claim, Job, JobStore, WorkerInfo, WorkerRegistry, new_job_id
from service.launch.embedded_server import server_binary, server_command
from service.settings import Settings
from tests.stack import png

HOUR, LEASE = 3600, 2.0
FIELDS = {"task": "restore", "prior": "embedded", "spec": {}, "inputs": {}}


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """What is written into it, in seconds, moves the store's clock."""
    file = tmp_path / "clock"
    file.write_text("0")
    return file


@pytest.fixture
def redis(tmp_path: Path, fake_clock: Path, clock: Path) -> Iterator[Redis]:
    """A real server whose clock can be set."""
    socket = tmp_path / "redis.sock"
    environment = {**os.environ, "LD_PRELOAD": str(fake_clock), "FAKE_CLOCK": str(clock)}
    server = subprocess.Popen(
        server_command(server_binary(Settings()), tmp_path, socket), env=environment
    )
    client, deadline = Redis.from_url(f"unix://{socket}"), time.monotonic() + 20
    while True:
        try:
            client.ping()
            break
        except RedisError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    yield client
    client.close()
    server.kill()
    server.wait()


def within(seconds: float, found: Any) -> Any:
    """The first thing ``found`` gives in so many seconds."""
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return answer


def set_clock(clock: Path, redis: Redis, seconds: int) -> None:
    """Sets it, and makes sure that the server follows."""
    clock.write_text(str(seconds))
    within(20, lambda: abs(redis.time()[0] - time.time() - seconds) < 5)


def test_a_store_set_back_by_an_hour_recovers_jobs_duties_and_workers(
    redis: Redis, clock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.jobs.workers.ALIVE_SECONDS", LEASE)
    store, registry = JobStore(redis, lease_seconds=LEASE), WorkerRegistry(redis)
    facts = {"seconds_per_token": 1.0, "max_pixels": 1, "job_bytes": 1, "token_bytes": 1}
    job = Job.model_validate({"id": new_job_id(), **FIELDS})
    store.submit(job)
    store.unclaimed("embedded", 0, messages=0)  # the message has just been republished
    before = store.now()
    set_clock(clock, redis, HOUR)  # as a server that starts before its clock is set right
    assert isinstance(store.claim(job.id, "a worker that dies"), Claim)
    registry.renew(WorkerInfo(name="dead", prior="embedded", device="cpu", **facts))
    assert store.lead("jobs", LEASE)
    set_clock(clock, redis, 0)
    assert not store.lead("jobs", LEASE)
    assert (store.now() - before).total_seconds() > HOUR - 10, "time does not go back"
    timeout = 2 * LEASE + 20
    assert within(timeout, lambda: store.lead("jobs", LEASE))
    assert [lost.id for lost in within(timeout, store.expired)] == [job.id]
    assert [waiting.id for waiting in within(timeout, lambda: store.unclaimed("embedded", 1, 0))]
    assert isinstance(store.claim(job.id, "another"), Claim)
    within(timeout, lambda: not registry.live())


def test_after_a_step_back_time_runs_slower_until_it_is_right_again(
    redis: Redis, clock: Path
) -> None:
    store = JobStore(redis)
    store.now()
    set_clock(clock, redis, 3)
    ahead = store.now()
    set_clock(clock, redis, 0)
    shown = [ahead]
    while (shown[-1].timestamp() - time.time()) > 0.05:
        assert len(shown) < 200
        time.sleep(0.1)
        shown.append(store.now())
    assert shown == sorted(shown)
    assert store.now().timestamp() == pytest.approx(time.time(), abs=0.5)


def test_an_api_whose_clock_jumps_a_day_ahead_deletes_nothing(
    fresh: Any, fake_clock: Path, tmp_path: Path
) -> None:
    clock = tmp_path / "api-clock"
    clock.write_text("0")
    environment = {"LD_PRELOAD": str(fake_clock), "FAKE_CLOCK": str(clock)}
    with ExitStack() as exits:
        target = exits.enter_context(fresh(environment=environment, sweep_seconds=0.2))
        http = exits.enter_context(target.client("victim"))
        redis = exits.enter_context(Redis.from_url(target.settings.redis_url))
        spec = '{"operator": {"type": "denoise"}, "sigma": 0.1}'
        job = http.post("/v1/restore", files={"image": png()}, data={"spec": spec}).json()
        http.post(job["urls"]["cancel"]).raise_for_status()  # over: it expires in a day
        kept = http.post(
            "/v1/files", content=png(48, 48), headers={"Content-Type": "image/png"}
        ).json()
        clock.write_text(str(25 * HOUR))
        for _ in range(5):  # the sweeper passes, five times
            redis.hdel("aps:leaders", "files")
            time.sleep(0.5)
        assert http.get(f"{job['urls']['self']}/artifacts/measurement.png").status_code == 200
        named = {"image": f"sha256:{kept['sha256']}", "operator": {"type": "denoise"}}
        answer = http.post("/v1/restore", json={**named, "sigma": 0.1})
        assert answer.status_code == 202, answer.text
