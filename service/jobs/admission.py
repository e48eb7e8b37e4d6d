"""On what terms a job is let in, and the errors of those that are not."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

from aps_core.errors import APSError
from service.jobs.model import Job


class IdempotencyConflict(APSError):
    """The key has been used for another request."""

    code = "idempotency_key_reused"
    title = "The Idempotency-Key belongs to another request"

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"This Idempotency-Key was used for another request, which became job '{job_id}'; use a"
            " new key."
        )


class NotNow(APSError):
    """The job is fine, but there are too many; ``retry_after`` says in how many seconds to ask
    again.
    """

    retryable: ClassVar[bool] = True

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = min(3600, max(1, round(retry_after)))


class QuotaExceeded(NotNow):
    """This client has as many waiting jobs as it may."""

    code = "quota_exceeded"
    title = "Too many jobs are waiting"


class StorageQuotaExceeded(QuotaExceeded):
    """This client's pictures and results take as much room as they may."""

    code = "storage_quota_exceeded"
    title = "Your stored files take too much room"

    def __init__(self, stored: int, most: int) -> None:
        super().__init__(
            f"Your jobs and pictures store {stored / 1e6:.0f} MB of the {most / 1e6:.0f} MB you may"
            " have, counted as they are stored. Delete jobs, or wait for the oldest to expire.",
            60,
        )


class QueueFull(NotNow):
    """The queue is longer than the service promises to work off."""

    code = "queue_full"
    title = "The queue is full"


@dataclass(frozen=True)
class Quota:
    """How much of the service one tenant may use; 0 or None = any."""

    max_queued: int = 0
    max_running: int | None = None
    max_backlog_seconds: float = 0
    """Predicted, of its unfinished jobs of one prior."""
    max_stored_bytes: int = 0


@dataclass(frozen=True)
class Terms:
    """What is checked in the transaction that writes the job."""

    idempotency_key: str = ""
    fingerprint: str = ""
    """What the key stands for: a hash of the request."""
    idempotency_seconds: int = 86_400
    max_queued: int = 0
    """Most waiting jobs of the tenant; 0 = any number."""
    max_backlog_seconds: float = 0
    """Most predicted seconds of unfinished jobs of the prior; 0 = any."""
    max_own_backlog_seconds: float = 0
    """Of them, the tenant's own; 0 = any."""
    max_stored_bytes: int = 0
    """Most bytes the tenant may have stored; 0 = any."""

    def check(self, word: str, value: str, job: Job) -> None:
        """Raises what the transition answered, unless it let the job in.

        Raises:
            IdempotencyConflict, QuotaExceeded, QueueFull: as ``word`` says; ``value`` is what it
                found.
        """
        match word:
            case "conflict":
                raise IdempotencyConflict(value)
            case "quota":
                raise QuotaExceeded(
                    f"{value} of your jobs are waiting already, as many as you may have; wait for"
                    " one to start.",
                    job.estimated_seconds or 1,
                )
            case "bytes":
                raise StorageQuotaExceeded(int(value), self.max_stored_bytes)
            case "share":
                raise QuotaExceeded(
                    f"Your unfinished jobs are about {float(value):.0f} s of work; no more are let"
                    f" in above {self.max_own_backlog_seconds:.0f} s. Wait for some to finish.",
                    float(value) - self.max_own_backlog_seconds,
                )
            case "full":
                raise QueueFull(
                    f"About {float(value):.0f} s of work are waiting, more than is promised here;"
                    " try again later.",
                    float(value) - self.max_backlog_seconds,
                )

    def entry(self, prefix: str, tenant: str) -> str:
        """Where the key's use is remembered: a client's keys are its own, and of bounded length."""
        return (
            f"{prefix}idempotency:{tenant}:{hashlib.sha256(self.idempotency_key.encode()).hexdigest()}"
            if self.idempotency_key
            else ""
        )


@dataclass(frozen=True)
class Standing:
    """What stands after a submission: the new job and its place in the queue, or the id of the one
    it repeats.
    """

    id: str
    job: Job | None = None
    queue_position: int | None = None
