"""The job store: job records, their state transitions, their files, and the registered workers.

Names are imported lazily: the client needs the record models only, without Redis and fsspec.
"""

from typing import TYPE_CHECKING

from aps_core._lazy import lazy_names

if TYPE_CHECKING:
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
    from service.jobs.failures import DEADLINE_EXCEEDED, time_limit
    from service.jobs.known import KnownPictures
    from service.jobs.load import Load
    from service.jobs.model import (
        Artifact,
        Event,
        Job,
        JobError,
        JobState,
        Phase,
        Priority,
        Progress,
        Webhook,
        new_job_id,
    )
    from service.jobs.outbox import Attempt, Delivery, DeliveryState, Outbox, OutboxKeys
    from service.jobs.share_side import TooManyLinks
    from service.jobs.store import JobStore, Page, Wanted, event_from
    from service.jobs.worker_side import Claim, Control, Refusal
    from service.jobs.workers import WorkerInfo, WorkerRegistry

_HOMES = {
    "admission": [
        "IdempotencyConflict",
        "NotNow",
        "QueueFull",
        "Quota",
        "QuotaExceeded",
        "StorageQuotaExceeded",
        "Terms",
    ],
    "artifacts": ["ArtifactStore", "StorageUnavailable"],
    "batches": ["Batch", "BatchStore", "Entry", "new_batch_id"],
    "connection": ["connect", "open_store"],
    "failures": ["DEADLINE_EXCEEDED", "time_limit"],
    "known": ["KnownPictures"],
    "load": ["Load"],
    "model": [
        "Artifact",
        "Event",
        "Job",
        "JobError",
        "JobState",
        "Phase",
        "Priority",
        "Progress",
        "Webhook",
        "new_job_id",
    ],
    "outbox": ["Attempt", "Delivery", "DeliveryState", "Outbox", "OutboxKeys"],
    "share_side": ["TooManyLinks"],
    "store": ["JobStore", "Page", "Wanted", "event_from"],
    "worker_side": ["Claim", "Control", "Refusal"],
    "workers": ["WorkerInfo", "WorkerRegistry"],
}

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
    "Event",
    "IdempotencyConflict",
    "Job",
    "JobError",
    "JobState",
    "JobStore",
    "KnownPictures",
    "Load",
    "NotNow",
    "Outbox",
    "OutboxKeys",
    "Page",
    "Phase",
    "Priority",
    "Progress",
    "QueueFull",
    "Quota",
    "QuotaExceeded",
    "Refusal",
    "StorageQuotaExceeded",
    "StorageUnavailable",
    "Terms",
    "TooManyLinks",
    "Wanted",
    "Webhook",
    "WorkerInfo",
    "WorkerRegistry",
    "connect",
    "event_from",
    "new_batch_id",
    "new_job_id",
    "open_store",
    "time_limit",
]

__getattr__ = lazy_names(__name__, _HOMES)
