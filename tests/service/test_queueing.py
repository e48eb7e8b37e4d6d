"""Queue order, deadlines and dead-lettered jobs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from redis import Redis

from aps_cli.main import main
from aps_contract import JobState, Phase, Priority, Progress
from service.jobs import Claim, Job, JobStore, new_job_id
from service.settings import Settings, queue_name
from tests.service.records import submitted


@pytest.fixture
def store(redis: Redis) -> JobStore:
    return JobStore(redis, max_attempts=2)


def taken(store: JobStore, owner: str = "a") -> str | None:
    claim = store.take("embedded", owner)
    return claim.job_id if claim else None


def current(store: JobStore, job: Job) -> Job:
    found = store.get(job.id)
    assert found is not None
    return found


def give_up(store: JobStore, job: Job) -> None:
    """Loses the worker in every attempt, until the job is dead-lettered."""
    for _ in range(2):
        assert isinstance(store.claim(job.id, "a"), Claim)
    assert store.claim(job.id, "a") == "poisoned"


def test_jobs_are_ordered_by_priority_then_age(store: JobStore) -> None:
    jobs = [
        submitted(store, priority=priority)
        for priority in ("low", "normal", "high", "normal", "high")
    ]
    order = [jobs[i].id for i in (2, 4, 1, 3, 0)]
    assert [store.queue_position(job) for job in jobs] == [order.index(job.id) for job in jobs]
    assert [taken(store, f"worker {i}") for i in range(5)] == order
    assert taken(store, "one more") is None


def test_old_low_priority_jobs_do_not_starve(store: JobStore) -> None:
    old = submitted(store, priority=Priority.LOW)
    store.redis.hset(f"aps:job:{old.id}", "created_at", f"{time.time() - 7300:.6f}")
    claim = store.claim(old.id, "a")
    assert isinstance(claim, Claim)
    store.release(claim)
    submitted(store, priority=Priority.HIGH)
    assert taken(store) == old.id


def test_a_new_child_resumes_its_job_before_any_other(store: JobStore) -> None:
    left = submitted(store)
    assert taken(store, "a") == left.id
    urgent = submitted(store, priority=Priority.HIGH)
    assert taken(store, "a") == left.id
    assert taken(store, "b") == urgent.id


def test_a_worker_whose_job_has_ended_takes_the_next(store: JobStore) -> None:
    first, second = submitted(store), submitted(store)
    claim = store.take("embedded", "a")
    assert claim
    assert claim.job_id == first.id
    store.succeed(claim, [], {}, None)
    assert taken(store, "a") == second.id


def test_a_queued_job_fails_when_its_deadline_passes(store: JobStore) -> None:
    job, patient = submitted(store, cancel_after_seconds=1), submitted(store)
    assert store.overdue() == []
    deadline = current(store, job).deadline
    assert deadline is not None
    assert abs(deadline.timestamp() - time.time() - 1) < 0.5
    time.sleep(max(0, deadline.timestamp() - time.time()) + 0.01)
    assert [late.id for late in store.overdue()] == [job.id]
    failed = current(store, job)
    assert (failed.state, failed.error and failed.error.code, failed.attempt) == (
        JobState.FAILED,
        "deadline_exceeded",
        0,
    )
    assert store.overdue() == []
    assert taken(store) == patient.id


def past_its_deadline(store: JobStore, job: Job) -> None:
    store.redis.hset(f"aps:job:{job.id}", "deadline", "1")
    store.redis.zadd("aps:deadlines", {job.id: 1})


def test_a_running_job_past_its_deadline_is_stopped_by_its_worker(store: JobStore) -> None:
    job = submitted(store, cancel_after_seconds=60)
    claim = store.take("embedded", "a")
    assert claim
    assert store.heartbeat(claim) == "run"
    past_its_deadline(store, job)
    assert store.overdue() == []
    assert store.heartbeat(claim) == "deadline"
    assert store.step(claim, Progress(step=1, total=2), {}, b"") == "deadline"
    store.cancel(job.id)
    assert store.heartbeat(claim) == "cancel", "what the user asked for comes first"


def test_jobs_past_their_deadline_are_not_started(store: JobStore) -> None:
    job, other = submitted(store, cancel_after_seconds=60), submitted(store)
    past_its_deadline(store, job)
    assert store.claim(job.id, "a") == "overdue"
    assert current(store, job).state is JobState.FAILED
    assert taken(store) == other.id


def test_a_dead_lettered_job_can_be_requeued_from_its_last_step(store: JobStore) -> None:
    job = submitted(store)
    claim = store.claim(job.id, "a")
    assert isinstance(claim, Claim)
    store.step(claim, Progress(step=4, total=9), {}, b"four")
    store.release(claim)
    give_up(store, job)
    assert [dead.id for dead in store.dead()] == [job.id]
    version = current(store, job).version

    assert store.requeue(job.id) == "queued"
    again = current(store, job)
    assert (again.state, again.phase, again.error, again.finished_at, again.stale_attempts) == (
        JobState.QUEUED,
        Phase.PREEMPTED,
        None,
        None,
        0,
    )
    assert again.version > version
    assert store.dead() == []
    assert store.redis.ttl(f"aps:job:{job.id}") == -1, "an unfinished job does not expire"
    assert [event.type for event in store.events(job.id)].count("done") == 0, (
        "a reader of the history does not stop at the first end"
    )
    claim = store.take("embedded", "b")
    assert claim
    assert store.load_checkpoint(job.id) == (4, b"four")
    assert store.succeed(claim, [], {}, 4)
    assert store.load_checkpoint(job.id) is None


def test_only_dead_lettered_jobs_are_requeued(store: JobStore) -> None:
    job = submitted(store)
    assert store.requeue(job.id) == "queued"
    assert current(store, job).version == 1, "it was queued already, and nothing changed"
    store.cancel(job.id)
    assert store.requeue(job.id) == "canceled"
    assert store.requeue(new_job_id()) == "missing"
    stale = submitted(store)
    give_up(store, stale)
    store.redis.hset(f"aps:job:{stale.id}", "expires_at", "1")
    assert store.requeue(stale.id) == "expired", "its pictures may be gone"


def test_the_command_lists_and_requeues_dead_lettered_jobs(
    store: JobStore, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    job = submitted(store)
    give_up(store, job)
    assert job.id in CliRunner().invoke(main, ["requeue"]).output
    assert CliRunner().invoke(main, ["requeue", job.id]).output == f"{job.id} queued\n"
    assert store.redis.llen(f"aps:mq:{queue_name('embedded')}") == 1
    refused = CliRunner().invoke(main, ["requeue", "absent"])
    assert refused.exit_code == 2
    assert "missing" in refused.output
