"""The job store: job records, their state transitions, their files, and the registered workers."""

from service.jobs.admission import (
    IdempotencyConflict,
    NotNow,
    QueueFull,
    Quota,
    QuotaExceeded,
    StorageQuotaExceeded,
    Terms,
)
from service.jobs.artifacts import ArtifactStore, StorageUnavailable
from service.jobs.batches import Batch, BatchStore, Entry, new_batch_id
from service.jobs.connection import connect, open_store
from service.jobs.failures import DEADLINE_EXCEEDED, job_error, time_limit
from service.jobs.known import KnownPictures
from service.jobs.load import Load
from service.jobs.model import Artifact, Job, new_job_id
from service.jobs.outbox import Attempt, Delivery, DeliveryState, Outbox, OutboxKeys
from service.jobs.share_side import TooManyLinks
from service.jobs.store import JobStore, Page, Wanted, event_from
from service.jobs.worker_side import Claim, Control, Refusal
from service.jobs.workers import WorkerInfo, WorkerRegistry

__all__ = [
    "DEADLINE_EXCEEDED",
    "Artifact",
    "ArtifactStore",
    "Attempt",
    "Batch",
    "BatchStore",
    "Claim",
    "Control",
    "Delivery",
    "DeliveryState",
    "Entry",
    "IdempotencyConflict",
    "Job",
    "JobStore",
    "KnownPictures",
    "Load",
    "NotNow",
    "Outbox",
    "OutboxKeys",
    "Page",
    "QueueFull",
    "Quota",
    "QuotaExceeded",
    "Refusal",
    "StorageQuotaExceeded",
    "StorageUnavailable",
    "Terms",
    "TooManyLinks",
    "Wanted",
    "WorkerInfo",
    "WorkerRegistry",
    "connect",
    "event_from",
    "job_error",
    "new_batch_id",
    "new_job_id",
    "open_store",
    "time_limit",
]
