"""Admission limits of new jobs, and the errors raised when one is exceeded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

from aps_core.errors import APSError
from aps_core.runtime.durations import in_words
from service.jobs.model import Job


class IdempotencyConflict(APSError):
    """The idempotency key was already used for a different request."""

    code = "idempotency_key_reused"
    title = "The Idempotency-Key was used for another request"

    def __init__(self, known: str, what: str = "job") -> None:
        super().__init__(
            f"This Idempotency-Key was used for another request, which created {what} '{known}';"
            " use a new key."
        )


class NotNow(APSError):
    """The request is valid, but a limit is exceeded for now; ``retry_after`` is in seconds."""

    retryable: ClassVar[bool] = True

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = min(3600, max(1, round(retry_after)))


class QuotaExceeded(NotNow):
    """This client has reached its limit of queued jobs."""

    code = "quota_exceeded"
    title = "Too many jobs are queued"


class StorageQuotaExceeded(QuotaExceeded):
    """This client has reached its storage limit."""

    code = "storage_quota_exceeded"
    title = "Your stored files take too much space"

    def __init__(self, stored: int, most: int) -> None:
        super().__init__(
            f"Your jobs and pictures use {stored / 1e6:.0f} MB of your {most / 1e6:.0f} MB of"
            " storage. Delete jobs, or wait for the oldest to expire.",
            60,
        )


class QueueFull(NotNow):
    """The predicted backlog of the prior exceeds the service's limit."""

    code = "queue_full"
    title = "The queue is full"


@dataclass(frozen=True)
class Quota:
    """Limits of one tenant; 0 or None means unlimited."""

    max_queued: int = 0
    max_running: int | None = None
    max_backlog_seconds: float = 0
    """Predicted seconds of the tenant's unfinished jobs of one prior."""
    max_stored_bytes: int = 0


@dataclass(frozen=True)
class Terms:
    """Limits checked in the transaction that writes the job."""

    idempotency_key: str = ""
    fingerprint: str = ""
    """Hash of the request that the key identifies."""
    idempotency_seconds: int = 86_400
    max_queued: int = 0
    """Maximum queued jobs of the tenant; 0 = unlimited."""
    max_backlog_seconds: float = 0
    """Maximum predicted seconds of all unfinished jobs of the prior; 0 = unlimited."""
    max_own_backlog_seconds: float = 0
    """The same for the tenant's own jobs; 0 = unlimited."""
    max_stored_bytes: int = 0
    """Maximum bytes stored by the tenant; 0 = unlimited."""

    def check(self, word: str, value: str, job: Job) -> None:
        """Raises the error for the transition's answer, unless it accepted the job.

        Args:
            word: Outcome of ``submit.lua``.
            value: The measured value that exceeded the limit, or the id of the conflicting job.
            job: The submitted job.

        Raises:
            IdempotencyConflict, QuotaExceeded, QueueFull: a limit is exceeded.
        """
        match word:
            case "conflict":
                raise IdempotencyConflict(value)
            case "quota":
                raise QuotaExceeded(
                    f"{value} of your jobs are queued, which is your limit; wait for one to start.",
                    job.estimated_seconds or 1,
                )
            case "bytes":
                raise StorageQuotaExceeded(int(value), self.max_stored_bytes)
            case "share":
                raise QuotaExceeded(
                    f"Your unfinished jobs take about {in_words(float(value))}; the limit is"
                    f" {in_words(self.max_own_backlog_seconds)}. Wait for some to finish.",
                    float(value) - self.max_own_backlog_seconds,
                )
            case "full":
                raise QueueFull(
                    f"The queued jobs take about {in_words(float(value))}; the limit is"
                    f" {in_words(self.max_backlog_seconds)}. Try again later.",
                    float(value) - self.max_backlog_seconds,
                )

    def entry(self, prefix: str, tenant: str) -> str:
        """Redis key of the idempotency record, per tenant and of bounded length; '' without one."""
        return (
            f"{prefix}idempotency:{tenant}:{hashlib.sha256(self.idempotency_key.encode()).hexdigest()}"
            if self.idempotency_key
            else ""
        )


@dataclass(frozen=True)
class Standing:
    """Result of a submission: the new job and its queue position, or the id of the earlier job
    that the request repeats.
    """

    id: str
    job: Job | None = None
    queue_position: int | None = None
