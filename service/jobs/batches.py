"""Records of batches: which jobs were submitted in one request. The jobs are ordinary jobs."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import cast

from pydantic import BaseModel, ConfigDict
from redis import Redis

from aps_contract import JobError
from service.jobs.model import new_job_id

KEPT_SECONDS = 7 * 86_400
"""How long a batch is kept after it was last read."""


class Entry(BaseModel):
    """Outcome of one picture of a batch: the job that restores it, or why there is none."""

    model_config = ConfigDict(frozen=True)

    job: str | None = None
    error: JobError | None = None

    @property
    def settled(self) -> bool:
        """Whether repeating the request cannot change the outcome."""
        return self.job is not None or (self.error is not None and not self.error.retryable)


class Batch(BaseModel):
    """Pictures submitted in one request, in its order."""

    model_config = ConfigDict(frozen=True)

    id: str
    tenant: str
    fingerprint: str
    """Hash of the request."""
    created_at: datetime
    entries: list[Entry]

    @property
    def jobs(self) -> list[str]:
        """Ids of the accepted jobs."""
        return [entry.job for entry in self.entries if entry.job is not None]


class BatchStore:
    """The records ``batch:ID``, as JSON."""

    def __init__(self, redis: Redis, prefix: str = "aps:") -> None:
        self.redis = redis
        self.prefix = prefix

    def get(self, batch_id: str) -> Batch | None:
        """The record, or None; it is then kept for another ``KEPT_SECONDS``."""
        raw = cast("bytes | None", self.redis.getex(self._key(batch_id), ex=KEPT_SECONDS))
        return Batch.model_validate_json(raw) if raw else None

    def put(self, batch: Batch) -> None:
        """Writes the record."""
        self.redis.set(self._key(batch.id), batch.model_dump_json(), ex=KEPT_SECONDS)

    def delete(self, batch_id: str) -> None:
        """Removes the record; the jobs stay."""
        self.redis.delete(self._key(batch_id))

    def _key(self, batch_id: str) -> str:
        return f"{self.prefix}batch:{batch_id}"


def new_batch_id(tenant: str, idempotency_key: str) -> str:
    """Id of a new batch. The same tenant and key always give the same id."""
    if not idempotency_key:
        return new_job_id()
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{len(tenant)} {tenant} {idempotency_key}"))
