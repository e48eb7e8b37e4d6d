"""Errors that the transitions themselves write into a job's record."""

from __future__ import annotations

from service.jobs.model import JobError

WORKER_LOST = JobError(
    code="worker_lost",
    title="The worker was lost",
    detail=(
        "Workers stopped repeatedly while computing this job and none finished a step; it is not"
        " tried again."
    ),
)

DEADLINE_EXCEEDED = JobError(
    code="deadline_exceeded",
    title="The deadline has passed",
    detail=(
        "The job was not finished within the time after which its result is of no use"
        " (Cancel-After)."
    ),
)


def time_limit(seconds: float) -> JobError:
    """The error of a job that computed longer than ``seconds``."""
    return JobError(
        code="time_limit_exceeded",
        title="The job ran too long",
        detail=f"The job was stopped after {seconds:g} s of computing.",
    )
