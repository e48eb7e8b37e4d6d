"""With any process killed, each accepted job ends once and bit-identical to an undisturbed run."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis.exceptions import OutOfMemoryError

from aps_contract import JobState
from aps_core.tasks import validate_spec
from service.jobs import Job
from tests.faults.cluster import LEASE, STEPS, Cluster, Victim
from tests.stack import TIMEOUT

pytestmark = pytest.mark.timeout(900)

KILLS = st.lists(
    st.tuples(st.sampled_from(["child", "child", "parent", "group"]), st.integers(1, STEPS - 2)),
    min_size=1,
    max_size=2,
    unique_by=lambda k: k[1],
)
"""Which process to kill, and after which step."""


def kill_at_random(cluster: Cluster, undisturbed: str, kills: list[tuple[Victim, int]]) -> None:
    cluster.ensure_worker()
    job = cluster.submit()
    for victim, step in sorted(kills, key=lambda kill: kill[1]):
        cluster.wait_for_step(job, step)
        saved = cluster.job(job).progress
        assert saved is not None
        if saved.step > STEPS - 2:
            break  # the job ended before the kill
        killed = time.monotonic()
        cluster.kill(victim)
        back = cluster.wait_for_step(job, saved.step + 2) - killed
        # time for the lease to expire or the next child to start, even on a busy machine
        assert back <= 2 * cluster.load_seconds + 5 + (0 if victim == "child" else LEASE), (
            f"{back:.1f} s after killing the {victim}"
        )
    assert cluster.result(job) == undisturbed
    done = cluster.job(job)
    assert done.resumed_from_step is not None or done.attempt == 1
    cluster.history(job)


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@settings(
    max_examples=2,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(KILLS)
def test_kills_at_random_steps_do_not_change_the_result(
    running_cluster: Cluster, undisturbed: str, kills: list[tuple[Victim, int]]
) -> None:
    kill_at_random(running_cluster, undisturbed, kills)


@pytest.mark.soak
@settings(
    max_examples=50,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(KILLS)
def test_many_kills_at_random_steps_do_not_change_the_result(
    running_cluster: Cluster, undisturbed: str, kills: list[tuple[Victim, int]]
) -> None:
    kill_at_random(running_cluster, undisturbed, kills)


def test_a_kill_between_tiles_does_not_change_a_large_picture(cluster: Cluster) -> None:
    spec = validate_spec(
        {
            "type": "restore",
            "operator": {"type": "gaussian_blur", "sigma": 1.0},
            "sigma": 0.1,
            "tile": 80,
            "sampler": {"type": "aps", "steps": 2, "inner_steps": 3},
        }
    ).resolved()
    fields = spec.model_dump(mode="json")
    undisturbed, killed = (cluster.submit(side=160, spec=fields) for _ in range(2))
    expected = cluster.result(undisturbed)
    cluster.wait_for_step(killed, 3)
    cluster.kill("child")
    assert cluster.result(killed) == expected
    resumed = cluster.job(killed).resumed_from_step
    assert resumed is not None
    assert resumed >= 3
    assert len([event for event in cluster.history(killed) if event.type == "progress"]) == 9


def test_a_killed_and_restarted_server_keeps_its_data(cluster: Cluster, undisturbed: str) -> None:
    running, waiting = cluster.submit(), cluster.submit()
    cluster.wait_for_step(running, 3)
    cluster.server.kill()
    time.sleep(0.5)
    cluster.server.start()
    for job in (running, waiting):
        assert cluster.result(job) == undisturbed
        cluster.history(job)


def test_a_worker_s_parent_is_idle_after_child_and_server_were_replaced(
    cluster: Cluster, undisturbed: str
) -> None:
    """A new child holds copies of its parent's connections. While it held them, the parent's event
    loop kept reporting those that the server had closed, and used a whole core.
    """
    job = cluster.submit()
    cluster.wait_for_step(job, 2)
    cluster.kill("child")
    assert cluster.result(job) == undisturbed
    time.sleep(1)  # its message is acknowledged; otherwise the worker stalls and is replaced
    cluster.server.kill()
    cluster.server.start()
    assert cluster.result(cluster.submit()) == undisturbed
    before = cpu_seconds(cluster.workers[-1].pid)
    time.sleep(3)
    assert cpu_seconds(cluster.workers[-1].pid) - before < 0.3


def test_a_store_that_is_away_for_long_fails_no_job(cluster: Cluster, undisturbed: str) -> None:
    job = cluster.submit()
    cluster.wait_for_step(job, 3)
    cluster.server.kill()
    time.sleep(9)  # the attempt gives up after about 5.5 s, at most 11 s
    cluster.server.start()
    assert cluster.result(job) == undisturbed
    cluster.history(job)


def test_a_server_frozen_beyond_the_lease_loses_no_job(cluster: Cluster, undisturbed: str) -> None:
    job = cluster.submit()
    cluster.wait_for_step(job, 3)
    cluster.server.process.send_signal(signal.SIGSTOP)
    time.sleep(LEASE + 0.5)
    cluster.server.process.send_signal(signal.SIGCONT)
    assert cluster.result(job) == undisturbed
    cluster.history(job)


def test_a_worker_frozen_beyond_its_lease_is_fenced(cluster: Cluster, undisturbed: str) -> None:
    job = cluster.submit()
    cluster.wait_for_step(job, 2)
    hung = cluster.child()
    os.kill(hung, signal.SIGSTOP)
    try:
        cluster.start_worker()
        assert cluster.result(job) == undisturbed
        version = cluster.job(job).version
    finally:
        os.kill(hung, signal.SIGCONT)
    time.sleep(1)  # its write fails because it has lost the lease
    assert cluster.job(job).version == version
    assert cluster.job(job).attempt == 2
    cluster.history(job)
    after = cluster.submit(seed=1, steps=2)
    assert cluster.wait(after).state is JobState.SUCCEEDED


def test_a_job_without_a_message_is_found_by_the_sweeper(
    cluster: Cluster, undisturbed: str
) -> None:
    assert cluster.result(cluster.submit(notify=False)) == undisturbed


def test_duplicate_messages_run_a_job_once(cluster: Cluster, undisturbed: str) -> None:
    job = cluster.submit()
    for _ in range(5):
        cluster.notifier.notify(job)
    assert cluster.result(job) == undisturbed
    assert cluster.job(job).attempt == 1
    cluster.history(job)


def test_a_full_server_rejects_new_jobs_and_finishes_running_ones(
    cluster: Cluster, undisturbed: str
) -> None:
    job = cluster.submit()
    cluster.wait_for_step(job, 2)
    redis = cluster.store.redis
    redis.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(OutOfMemoryError):
            cluster.submit()
        assert cluster.result(job) == undisturbed
    finally:
        redis.config_set("maxmemory", "0")
    after, deadline = cluster.submit(), time.monotonic() + TIMEOUT
    while not cluster.job(after).state.terminal and time.monotonic() < deadline:
        # a worker that cannot receive messages eventually exits; its supervisor restarts it
        cluster.ensure_worker()
        time.sleep(0.1)
    assert cluster.result(after) == undisturbed


def test_a_terminated_worker_requeues_its_job_within_a_step_and_a_second(
    cluster: Cluster, undisturbed: str
) -> None:
    job = cluster.submit()
    cluster.wait_for_step(job, 2)
    worker = cluster.workers[-1]
    worker.send_signal(signal.SIGTERM)
    asked = time.monotonic()
    while (now := cluster.job(job)).state is JobState.RUNNING:
        assert now.progress is not None
        assert time.monotonic() - asked < 3 * now.progress.seconds + 1, (
            "a step, which may be slow on a busy machine, and a second"
        )
        time.sleep(0.01)
    assert cluster.job(job).state is JobState.QUEUED
    assert worker.wait(10) == 0
    cluster.ensure_worker()
    assert cluster.result(job) == undisturbed
    assert cluster.job(job).stale_attempts == 0
    cluster.history(job)


def test_a_damaged_checkpoint_costs_one_more_step(cluster: Cluster, undisturbed: str) -> None:
    job = cluster.submit()
    cluster.wait_for_step(job, 4)
    os.killpg(cluster.workers[-1].pid, signal.SIGKILL)
    cluster.workers[-1].wait()
    damaged = cluster.damage_newest_checkpoint(job)
    cluster.ensure_worker()
    assert cluster.result(job) == undisturbed
    assert cluster.job(job).resumed_from_step == damaged - 1


def test_a_full_disk_is_retried_and_then_fails_only_the_job(
    cluster: Cluster, undisturbed: str
) -> None:
    child = cluster.child()
    limits = resource.prlimit(child, resource.RLIMIT_FSIZE)
    job = cluster.submit()
    cluster.wait_for_step(job, 2)
    resource.prlimit(child, resource.RLIMIT_FSIZE, (1, limits[1]))  # no file may grow beyond a byte
    try:
        wait_for_phase(cluster, job, "storing")
        time.sleep(1)
        assert cluster.job(job).state is JobState.RUNNING
        resource.prlimit(child, resource.RLIMIT_FSIZE, limits)
        assert cluster.result(job) == undisturbed
        resource.prlimit(child, resource.RLIMIT_FSIZE, (1, limits[1]))
        failed = cluster.wait(cluster.submit(seed=1, steps=2))
    finally:
        resource.prlimit(child, resource.RLIMIT_FSIZE, limits)
    assert failed.error is not None
    assert (failed.state, failed.error.code, failed.error.retryable) == (
        JobState.FAILED,
        "storage_unavailable",
        True,
    )
    assert cluster.child() == child, "the worker goes on"
    assert cluster.result(cluster.submit()) == undisturbed


def wait_for_phase(cluster: Cluster, job: Job, phase: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while cluster.job(job).phase != phase:
        assert time.monotonic() < deadline, cluster.job(job)
        time.sleep(0.01)


def test_a_deadline_stops_a_running_job_at_its_next_step(cluster: Cluster) -> None:
    job = cluster.submit(steps=128, inner=40, cancel_after_seconds=1)
    done = cluster.wait(job)
    assert (done.state, done.error and done.error.code) == (JobState.FAILED, "deadline_exceeded")
    assert done.deadline is not None
    assert done.finished_at is not None
    step = done.progress.seconds if done.progress else 1
    assert (done.finished_at - done.deadline).total_seconds() < 3 * step + 1
    assert cluster.wait(cluster.submit(steps=2)).state is JobState.SUCCEEDED, "the worker goes on"


def test_one_out_of_memory_error_does_not_change_the_result_and_is_noted(
    cluster: Cluster, undisturbed: str
) -> None:
    cluster.sabotage.write_text("memory")
    job = cluster.submit()
    assert cluster.result(job) == undisturbed
    assert not cluster.sabotage.exists()
    done = cluster.job(job)
    assert (done.attempt, done.metrics["memory_fallbacks"]) == (1, ["free_cache"])
    cluster.history(job)


def test_a_lost_cuda_context_replaces_the_child_and_costs_one_step(
    cluster: Cluster, undisturbed: str
) -> None:
    before, parent = cluster.child(), cluster.workers[-1].pid
    cluster.sabotage.write_text("sticky")
    job = cluster.submit()
    assert cluster.result(job) == undisturbed
    assert not cluster.sabotage.exists()
    assert (cluster.child() == before, cluster.workers[-1].pid, cluster.workers[-1].poll()) == (
        False,
        parent,
        None,
    )
    assert cluster.job(job).attempt == 2
    cluster.history(job)
