"""The sweeper republishes jobs with lost messages and deletes expired data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from redis import Redis

from aps_contract import JobState
from service.dispatch.notifier import JobNotifier
from service.dispatch.sweeper import Sweeper
from service.jobs import ArtifactStore, Claim, Job, JobStore, new_job_id, open_store
from service.settings import Settings, queue_name
from tests.service.records import submitted

QUEUE = f"aps:mq:{queue_name('embedded')}"


@pytest.fixture
def sweeper(redis: Redis, settings: Settings) -> Iterator[Sweeper]:
    settings = settings.model_copy(update={"republish_seconds": 5})
    store, _ = open_store(settings)
    notifier = JobNotifier(settings)
    yield Sweeper(settings, store, ArtifactStore(settings.artifacts), notifier)
    notifier.close()
    store.redis.close()


def state_of(store: JobStore, job: Job) -> JobState:
    found = store.get(job.id)
    assert found is not None
    return found.state


def with_file(sweeper: Sweeper, job_id: str) -> str:
    sweeper.artifacts.put(job_id, "x.json", b"{}", "application/json")
    return job_id


def files_left(sweeper: Sweeper) -> set[str]:
    sweeper.store.redis.hdel("aps:leaders", "files")  # its turn has come
    sweeper.sweep()
    return {folder.name for folder in Path(sweeper.artifacts.root).iterdir()}


def test_the_job_of_a_silent_worker_is_republished(sweeper: Sweeper) -> None:
    job = submitted(sweeper.store)
    assert isinstance(sweeper.store.claim(job.id, "a"), Claim)
    sweeper.sweep()
    assert sweeper.store.redis.llen(QUEUE) == 0
    sweeper.store.redis.zadd("aps:leases", {job.id: 1})
    sweeper.sweep()
    assert state_of(sweeper.store, job) is JobState.QUEUED
    assert sweeper.store.redis.llen(QUEUE) == 1


def test_a_job_with_a_lost_message_is_republished(sweeper: Sweeper) -> None:
    job = submitted(sweeper.store)  # and the API exited before it could publish the message
    sweeper.sweep()
    assert sweeper.store.redis.llen(QUEUE) == 0
    sweeper.store.redis.hset(f"aps:job:{job.id}", "announced_at", time.time() - 6)
    sweeper.sweep()
    assert sweeper.store.redis.llen(QUEUE) == 1


def test_a_deadline_ends_a_waiting_job(sweeper: Sweeper) -> None:
    job = submitted(sweeper.store, cancel_after_seconds=60)
    sweeper.store.redis.hset(f"aps:job:{job.id}", "deadline", "1")
    sweeper.store.redis.zadd("aps:deadlines", {job.id: 1})
    sweeper.sweep()
    assert state_of(sweeper.store, job) is JobState.FAILED


def test_files_are_deleted_only_after_their_job_expires(sweeper: Sweeper) -> None:
    waiting, finished, expired = (submitted(sweeper.store) for _ in range(3))
    for job in (finished, expired):
        sweeper.store.cancel(job.id)
    sweeper.store.redis.hset(f"aps:job:{expired.id}", "expires_at", "1")
    for job in (waiting, finished, expired):
        with_file(sweeper, job.id)
    assert files_left(sweeper) == {waiting.id, finished.id}


def test_orphaned_files_are_deleted_but_not_those_of_new_submissions(
    sweeper: Sweeper,
) -> None:
    left = with_file(sweeper, new_job_id())
    Path(sweeper.artifacts.root, "not-a-job").mkdir()
    assert files_left(sweeper) == {left, "not-a-job"}
    sweeper.store.redis.zincrby("aps:orphans", -7200, left)  # two hours later
    under_way = with_file(sweeper, new_job_id())
    assert files_left(sweeper) == {under_way, "not-a-job"}


def test_expired_records_leave_the_lists(sweeper: Sweeper) -> None:
    job = submitted(sweeper.store)
    sweeper.store.redis.zadd("aps:dead", {job.id: 1})
    sweeper.store.cancel(job.id)
    sweeper.store.redis.delete(f"aps:job:{job.id}")
    sweeper.store.redis.zadd("aps:records:due", {f"{job.id} ": 1})
    sweeper.sweep()
    assert sweeper.store.redis.zcard("aps:jobs:") == 0
    assert sweeper.store.redis.zcard("aps:dead") == 0


def test_only_one_of_many_sweepers_works(sweeper: Sweeper) -> None:
    job = submitted(sweeper.store)
    sweeper.store.redis.hset(f"aps:job:{job.id}", "announced_at", time.time() - 1000)
    assert sweeper.store.lead("jobs", 0.5), "another process leads"
    fast = Sweeper(
        sweeper.settings.model_copy(update={"sweep_seconds": 0.05}),
        sweeper.store,
        sweeper.artifacts,
        sweeper.notifier,
    )
    fast.start()
    try:
        time.sleep(0.2)
        assert sweeper.store.redis.llen(QUEUE) == 0
        deadline = time.monotonic() + 10
        while sweeper.store.redis.llen(QUEUE) != 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        fast.stop()


def test_an_error_does_not_end_the_sweeps(
    sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = Event()

    def sweep() -> None:
        if not failed:
            failed.append(True)
            raise ValueError("a record that cannot be read")
        swept.set()

    failed: list[bool] = []
    sweeper.settings = sweeper.settings.model_copy(update={"sweep_seconds": 0.05})
    monkeypatch.setattr(sweeper, "sweep", sweep)
    sweeper.start()
    try:
        assert swept.wait(10)
    finally:
        sweeper.stop()
