"""Errors in a job's record: those of the library, and those that the Lua transitions write."""

from __future__ import annotations

from aps_contract import JobError
from aps_core.errors import APSError

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


def job_error(error: APSError) -> JobError:
    """Converts one of the library's errors."""
    return JobError(
        code=error.code, title=error.title, detail=str(error), retryable=error.retryable
    )
