"""Errors that the Lua transitions write into a job's record."""

from __future__ import annotations

from service.jobs.model import JobError

WORKER_LOST = JobError(
    code="worker_lost",
    title="The worker was lost",
    detail=(
        "Workers stopped repeatedly while computing this job, and none finished a step. The job is"
        " not retried."
    ),
)

DEADLINE_EXCEEDED = JobError(
    code="deadline_exceeded",
    title="The deadline has passed",
    detail=("The job did not finish before its deadline (Cancel-After)."),
)


def time_limit(seconds: float) -> JobError:
    """The error of a job that exceeded its limit of ``seconds`` of computing time."""
    return JobError(
        code="time_limit_exceeded",
        title="The job ran too long",
        detail=f"The job was stopped after {seconds:g} s of computing.",
    )
