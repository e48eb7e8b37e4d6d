"""Cancellation, deadline, time limit, shutdown and a lost lease interrupt a long reverse step."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from aps_contract import JobState
from service.jobs import Job
from tests.faults.cluster import LEASE, Cluster
from tests.stack import TIMEOUT

pytestmark = pytest.mark.timeout(600)

PROMPT = 20
"""Seconds; a stop takes a fraction of one on an idle machine, the step that is stopped minutes."""


def endless(cluster: Cluster) -> Job:
    """A job whose first step takes minutes, inside that step."""
    job = cluster.submit(steps=4, inner=5000, side=256)
    deadline = time.monotonic() + TIMEOUT
    while not any(event.type == "inner" for event in cluster.store.events(job.id)):
        assert time.monotonic() < deadline, cluster.log.read_text()[-3000:]
        time.sleep(0.05)
    return job


def test_a_long_step_reports_progress_and_stops_when_canceled(cluster: Cluster) -> None:
    job = endless(cluster)
    inner = next(event.data for event in cluster.store.events(job.id) if event.type == "inner")
    assert (inner["step"], inner["total"], inner["inner_steps"]) == (1, 4, 5000)
    assert 0 < inner["inner_step"] < 5000
    asked = time.monotonic()
    cluster.store.cancel(job.id)
    assert cluster.wait(job).state is JobState.CANCELED
    assert time.monotonic() - asked < PROMPT
    assert cluster.job(job).progress is None, "not one step was finished"


def test_a_deadline_that_passes_inside_a_step_ends_the_job(cluster: Cluster) -> None:
    job = endless(cluster)
    asked = time.monotonic()
    cluster.store.redis.hset(f"aps:job:{job.id}", "deadline", "1")
    failed = cluster.wait(job)
    assert failed.error is not None
    assert failed.error.code == "deadline_exceeded"
    assert time.monotonic() - asked < PROMPT


def test_a_terminated_worker_interrupts_a_long_step(cluster: Cluster) -> None:
    job, worker = endless(cluster), cluster.workers[-1]
    asked = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    worker.wait(PROMPT)
    assert time.monotonic() - asked < PROMPT
    back = cluster.job(job)
    assert (back.state, back.stopped_by, back.stale_attempts) == (JobState.QUEUED, "drained", 0)
    cluster.store.cancel(job.id)


def test_a_worker_that_lost_its_lease_interrupts_a_long_step(cluster: Cluster) -> None:
    job = endless(cluster)
    # as if another had claimed it
    cluster.store.redis.hset(f"aps:job:{job.id}", mapping={"owner": "another", "fence": 9})
    cluster.store.redis.zadd("aps:leases", {job.id: time.time() + 3600})
    asked = time.monotonic()
    other = cluster.submit(steps=1, inner=1, side=64)
    assert cluster.wait(other).state is JobState.SUCCEEDED, "the worker is free"
    assert time.monotonic() - asked < PROMPT
    cluster.store.cancel(job.id)
    cluster.store.redis.zadd("aps:leases", {job.id: 1})
    assert cluster.wait(job).state is JobState.CANCELED


@pytest.fixture
def short_of_time(cluster: Cluster) -> Iterator[Cluster]:
    """Jobs may take four seconds."""
    settings = cluster.settings
    cluster.settings = settings.model_copy(update={"max_job_seconds": 4})
    cluster.stop(cluster.workers.pop())
    cluster.start_worker()
    yield cluster
    cluster.settings = settings
    cluster.stop(cluster.workers.pop())


def test_a_job_over_its_time_limit_fails_once_and_is_not_retried(short_of_time: Cluster) -> None:
    job = short_of_time.submit(steps=4, inner=5000, side=256)
    failed = short_of_time.wait(job)
    assert failed.error is not None
    assert (failed.error.code, failed.attempt) == ("time_limit_exceeded", 1)
    assert failed.started_at is not None
    assert failed.finished_at is not None
    assert (failed.finished_at - failed.started_at).total_seconds() < 4 + PROMPT


def test_a_job_over_its_time_limit_is_not_retried_when_its_worker_is_lost(cluster: Cluster) -> None:
    store = cluster.store
    job = cluster.submit(notify=False, prior="nobody holds this one")
    longest, store.max_job_seconds = store.max_job_seconds, 60
    try:
        assert store.take(job.prior, "a worker") is not None
        store.redis.hincrbyfloat(f"aps:job:{job.id}", "claimed_at", -61)
        store.redis.zadd("aps:leases", {job.id: 1})
        failed = cluster.wait(job, 10 * LEASE)
    finally:
        store.max_job_seconds = longest
    assert failed.error is not None
    assert (failed.error.code, failed.attempt) == ("time_limit_exceeded", 1)
