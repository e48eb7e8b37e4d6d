"""Checks of a soak test: what the records and histories of its jobs must show."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from aps_contract import Event, JobState
from service.jobs import Job, JobStore


def checked(
    store: JobStore, jobs: dict[str, int], expected: dict[int, str], steps: int
) -> dict[str, Any]:
    """Checks the records and histories of all jobs, and summarises them.

    Args:
        store: the job store.
        jobs: seed of every submitted job by id.
        expected: result file of an undisturbed job by seed.
        steps: reverse steps of every job.
    """
    faults: list[str] = []
    states: Counter[str] = Counter()
    seconds, resumed, repeated, wasted = [], 0, 0, 0
    for job_id, seed in jobs.items():
        job, events = store.get(job_id), store.events(job_id, count=5000)
        if job is None or not job.state.terminal:
            states["lost"] += 1
            faults.append(f"{job_id} is lost: {job and job.state}")
            continue
        states[job.state] += 1
        faults += [f"{job_id} {what}" for what in _faults(job, events, expected[seed], steps)]
        resumed += job.resumed_from_step is not None
        repeated += job.attempt > 1
        # an interrupted attempt wastes its current step
        wasted += sum(event.data.get("state") == "queued" for event in events[1:])
        if job.finished_at and job.created_at:
            seconds.append((job.finished_at - job.created_at).total_seconds())
    return {
        "states": dict(states),
        "lost": states["lost"],
        "finished_twice": sum("ended" in fault and "ended 0" not in fault for fault in faults),
        "faults": faults[:50],
        "jobs_tried_again": repeated,
        "jobs_resumed_from_a_checkpoint": resumed,
        "jobs_put_back": wasted,
        "seconds_submission_to_end": {
            "p50": quantile(seconds, 0.5),
            "p99": quantile(seconds, 0.99),
            "max": max(seconds, default=0.0),
        },
    }


def _faults(job: Job, events: list[Event], expected: str, steps: int) -> list[str]:
    """What is wrong with one job that has ended."""
    ends = [event.type for event in events].count("done")
    versions = [event.data["version"] for event in events]
    saved = [event.data["step"] for event in events if event.type == "progress"]
    result = job.artifact("result.png")
    wrong = {
        f"ended {ends} times": ends != 1,
        "its last event is not its end": events[-1].type != "done",
        "its version did not grow": versions != sorted(set(versions)),
        f"saved the steps {saved}": saved != list(range(1, steps + 1)),
        f"is {job.state}: {job.error}": job.state is not JobState.SUCCEEDED,
        "has other bytes than an undisturbed run": result is None or result.file != expected,
    }
    return [what for what, holds in wrong.items() if holds]


def quantile(values: list[float], q: float) -> float:
    return (
        round(statistics.quantiles(values, n=1000)[round(q * 1000) - 1], 3)
        if len(values) > 1
        else 0.0
    )
