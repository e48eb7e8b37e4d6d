"""The job protocol with a real server."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis import Redis

from aps_contract import JobError, JobState, Phase, Progress
from service.jobs import Claim, Job, JobStore, WorkerInfo, WorkerRegistry, new_job_id


def make_job(**changes: object) -> Job:
    described = {
        "id": new_job_id(),
        "task": "restore",
        "prior": "embedded",
        "spec": {"type": "restore", "operator": {"type": "denoise"}},
        "inputs": {},
        "image_size": (64, 48),
        "output_size": (64, 48),
        "estimated_seconds": 1.5,
    }
    return Job.model_validate({**described, **changes})


@pytest.fixture
def store(redis: Redis) -> JobStore:
    return JobStore(redis, lease_seconds=30, ttl_seconds=100, max_attempts=3)


@pytest.fixture
def job(store: JobStore) -> Job:
    job = make_job()
    assert store.submit(job)
    return job


def claimed(store: JobStore, job: Job, owner: str = "a") -> Claim:
    claim = store.claim(job.id, owner)
    assert isinstance(claim, Claim)
    return claim


def expire_lease(store: JobStore, job: Job) -> None:
    store.redis.zadd(f"{store.prefix}leases", {job.id: 1})


def current(store: JobStore, job: Job) -> Job:
    found = store.get(job.id)
    assert found is not None
    return found


def test_a_submitted_job_is_read_back_unchanged(store: JobStore, job: Job) -> None:
    found = current(store, job)
    assert found.spec == job.spec
    assert (found.image_size, found.output_size, found.estimated_seconds) == (
        (64, 48),
        (64, 48),
        1.5,
    )
    assert (found.state, found.phase, found.version, found.attempt) == (
        JobState.QUEUED,
        Phase.WAITING,
        1,
        0,
    )
    assert found.created_at is not None
    assert abs(found.created_at.timestamp() - time.time()) < 5


def test_a_repeated_submit_has_no_effect(store: JobStore, job: Job) -> None:
    claimed(store, job)
    assert store.submit(job).id == job.id
    assert current(store, job).state is JobState.RUNNING


def test_a_job_from_queue_to_success(store: JobStore, job: Job) -> None:
    claim = claimed(store, job)
    store.enter(claim, Phase.SAMPLING)
    for step in (1, 2):
        assert (
            store.step(
                claim,
                Progress(step=step, total=2),
                {"step": step, "loss_curve": []},
                b"state",
                f"file{step}",
            )
            == "run"
        )
    assert store.succeed(claim, [], {"misfit": 0.1}, None)
    done = current(store, job)
    assert (done.state, done.phase, done.metrics) == (JobState.SUCCEEDED, None, {"misfit": 0.1})
    assert done.progress is not None
    assert done.progress.step == 2
    events = store.events(job.id)
    assert [event.type for event in events] == [
        "status",
        "status",
        "status",
        "progress",
        "progress",
        "done",
    ]
    assert [event.data["version"] for event in events] == list(range(1, 7))
    assert events[3].data["loss_curve"] == []
    assert store.preview_file(job.id, 2) == "file2"
    assert store.load_checkpoint(job.id) is None, "a finished job needs no checkpoint"
    assert store.redis.ttl(f"aps:job:{job.id}") > 0


def test_events_resume_after_an_id(store: JobStore, job: Job) -> None:
    claim = claimed(store, job)
    first, second = store.events(job.id)
    assert store.events(job.id, after=first.id) == [second]
    store.release(claim)
    assert [event.data.get("phase") for event in store.events(job.id, after=second.id)] == [
        "preempted"
    ]


def test_one_worker_at_a_time(store: JobStore, job: Job) -> None:
    claimed(store, job, "a")
    assert store.claim(job.id, "b") == "leased"


def test_a_new_child_resumes_the_job_and_fences_the_old_one(store: JobStore, job: Job) -> None:
    old = claimed(store, job, "a")
    new = claimed(store, job, "a")
    assert new.fence > old.fence
    assert store.heartbeat(old) == "lost"
    assert store.step(old, Progress(step=9, total=9), {}, b"stale") == "lost"
    assert not store.succeed(old, [], {}, None)
    assert not store.fail(old, JobError(code="x", title="x", detail="x"))
    assert not store.release(old)
    assert store.load_checkpoint(job.id) is None
    assert store.heartbeat(new) == "run"


def test_a_worker_without_heartbeat_loses_its_job(store: JobStore, job: Job) -> None:
    old = claimed(store, job, "a")
    store.step(old, Progress(step=3, total=9), {}, b"three")
    assert store.expired() == []
    expire_lease(store, job)
    assert [lost.id for lost in store.expired()] == [job.id]
    assert (current(store, job).state, current(store, job).phase) == (
        JobState.QUEUED,
        Phase.PREEMPTED,
    )
    assert store.heartbeat(old) == "lost"
    claimed(store, job, "b")
    assert store.load_checkpoint(job.id) == (3, b"three")


def test_a_late_heartbeat_keeps_an_unclaimed_job(store: JobStore, job: Job) -> None:
    claim = claimed(store, job)
    expire_lease(store, job)
    assert store.heartbeat(claim) == "run"
    assert store.expired() == []


def test_a_sweep_does_not_take_a_job_whose_lease_was_extended_meanwhile(
    store: JobStore, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claimed(store, job)
    monkeypatch.setattr(
        store.redis, "zrangebyscore", lambda *_: [job.id.encode()]
    )  # what the sweep saw a moment ago
    assert store.expired() == []
    assert store.heartbeat(claim) == "run"


def test_a_damaged_checkpoint_falls_back_to_the_previous_one(store: JobStore, job: Job) -> None:
    claim = claimed(store, job)
    for step in (1, 2, 3):
        store.step(claim, Progress(step=step, total=9), {}, f"state {step}".encode())
    key = f"aps:job:{job.id}:checkpoint"
    raw: Any = store.redis.hget(key, "1")
    store.redis.hset(key, "1", raw[:-1] + b"?")
    assert store.load_checkpoint(job.id) == (2, b"state 2")


def test_a_job_that_kills_its_workers_fails_after_three_attempts(store: JobStore, job: Job) -> None:
    for _ in range(3):
        claimed(store, job)
    assert store.claim(job.id, "a") == "poisoned"
    failed = current(store, job)
    assert failed.state is JobState.FAILED
    assert failed.error is not None
    assert failed.error.code == "worker_lost"
    assert failed.attempt == 3
    assert store.claim(job.id, "a") == "finished"


def test_progress_and_draining_do_not_count_as_failed_attempts(store: JobStore, job: Job) -> None:
    for step in range(1, 6):
        store.step(claimed(store, job), Progress(step=step, total=9), {}, b"state")
    for _ in range(5):
        assert store.release(claimed(store, job))
    assert current(store, job).stale_attempts == 0


def test_steps_without_a_checkpoint_do_not_save_a_job_that_kills_its_workers(
    store: JobStore, job: Job
) -> None:
    """It begins anew each time, and would do so for ever."""
    for step in range(1, 4):
        store.step(claimed(store, job), Progress(step=step, total=9), {}, b"")
    assert store.load_checkpoint(job.id) is None
    assert store.claim(job.id, "a") == "poisoned"


def test_canceling_a_queued_job_ends_it_at_once(store: JobStore, job: Job) -> None:
    assert store.cancel(job.id) == "queued"
    assert current(store, job).state is JobState.CANCELED
    assert store.queue_position(job) is None
    assert store.claim(job.id, "a") == "finished"
    assert store.cancel(job.id) == "canceled"


def test_canceling_a_running_job_reaches_its_worker(store: JobStore, job: Job) -> None:
    claim = claimed(store, job)
    assert store.cancel(job.id) == "running"
    assert store.heartbeat(claim) == "cancel"
    assert store.step(claim, Progress(step=1, total=2), {}, b"") == "cancel"
    assert store.canceled(claim, [])
    assert current(store, job).state is JobState.CANCELED


def test_a_canceled_job_whose_worker_died_is_not_run_again(store: JobStore, job: Job) -> None:
    claimed(store, job)
    store.cancel(job.id)
    expire_lease(store, job)
    assert [ended.state for ended in store.expired()] == [JobState.CANCELED]
    assert store.claim(job.id, "b") == "finished"
    assert store.depth("embedded") == 0


def test_delete(store: JobStore, job: Job) -> None:
    claim = claimed(store, job)
    assert store.delete(job.id) == "running"
    store.succeed(claim, [], {}, None)
    assert store.delete(job.id) == "deleted"
    assert store.delete(job.id) == "missing"
    assert store.get(job.id) is None
    assert store.page().jobs == []
    assert list(store.redis.scan_iter(f"*{job.id}*")) == []


def test_jobs_with_lost_messages_are_republished(store: JobStore, job: Job) -> None:
    assert store.unclaimed("embedded", 10, messages=0) == []
    assert [lost.id for lost in store.unclaimed("embedded", 0, messages=0)] == [job.id]
    for _ in range(3):  # however often the message is lost
        store.redis.hset(f"aps:job:{job.id}", "announced_at", time.time() - 11)
        assert len(store.unclaimed("embedded", 10, messages=0)) == 1
    store.submit(make_job())
    assert len(store.unclaimed("embedded", 0, messages=1)) == 1, "one of the two has its message"
    assert store.unclaimed("embedded", 0, messages=2) == []
    claimed(store, job)
    assert store.unclaimed("embedded", 0, messages=1) == []


def test_queue_positions_and_pages(store: JobStore) -> None:
    jobs = []
    for _ in range(5):
        jobs.append(make_job())
        store.submit(jobs[-1])
        time.sleep(0.002)  # ids sort by millisecond
    assert [store.queue_position(job) for job in jobs] == [0, 1, 2, 3, 4]
    assert store.depth("embedded") == 5
    first = store.page(limit=3)
    assert [job.id for job in first.jobs] == [job.id for job in jobs[:1:-1]]
    rest = store.page(limit=3, cursor=first.cursor)
    assert [job.id for job in rest.jobs] == [job.id for job in jobs[1::-1]]
    assert rest.cursor is None
    claim = claimed(store, jobs[0])
    assert store.queue_position(jobs[1]) == 0
    store.release(claim)
    assert store.queue_position(jobs[0]) == 0, "a job handed back keeps its place"


def test_expired_records_leave_the_list(store: JobStore, job: Job) -> None:
    store.cancel(job.id)
    store.redis.delete(f"aps:job:{job.id}")
    assert store.page().jobs == []
    store.forget_expired()
    assert store.redis.zcard("aps:jobs:") == 1, "its time is not over"
    for due in ("files:due", "records:due"):
        entries: Any = store.redis.zrange(f"aps:{due}", 0, -1)
        (entry,) = entries
        store.redis.zadd(f"aps:{due}", {entry: 1})
    store.forget_expired()
    assert store.redis.zcard("aps:jobs:") == 0


def test_only_one_sweeper_is_active(store: JobStore) -> None:
    assert store.lead("jobs", 10)
    assert not store.lead("jobs", 10)
    assert store.lead("files", 10)


def test_worker_registrations_expire(redis: Redis) -> None:
    registry = WorkerRegistry(redis)
    for name in ("one", "two"):
        registry.renew(
            WorkerInfo(
                name=name,
                prior="embedded",
                device="cpu",
                seconds_per_token=1e-4,
                max_pixels=1,
                job_bytes=1,
                token_bytes=1,
            )
        )
    assert {worker.name for worker in registry.live()} == {"one", "two"}
    redis.zadd("aps:workers:lapse", {"one": 1})
    assert {worker.name for worker in registry.live()} == {"two"}
    registry.remove("two")
    assert registry.live() == []


def test_the_preview_within_a_step_is_replaced_and_ends_with_the_step(
    store: JobStore, job: Job
) -> None:
    claim = claimed(store, job)
    assert store.current_preview(job.id) is None
    store.pulse(claim, {"step": 1}, b"first")
    store.pulse(claim, {"step": 1}, b"\xff\xd8 newer")
    store.pulse(claim, {"step": 1})
    assert store.current_preview(job.id) == b"\xff\xd8 newer"
    assert 0 < store.redis.ttl(f"aps:job:{job.id}:current") <= 60, "also if the worker is lost"
    store.step(claim, Progress(step=1, total=9), {}, b"state")
    assert store.current_preview(job.id) is None
    store.pulse(claim, {"step": 2}, b"third")
    store.succeed(claim, [], {}, None)
    assert store.current_preview(job.id) is None
    assert b"\xff\xd8 newer" not in b"".join(
        store.redis.dump(key) or b"" for key in store.redis.scan_iter()
    )
