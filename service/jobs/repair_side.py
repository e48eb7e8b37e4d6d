"""The sweeper's side of the job store: recovers lost jobs and ends overdue ones."""

from __future__ import annotations

from typing import Any, cast

from service.jobs.base import StoreBase
from service.jobs.failures import DEADLINE_EXCEEDED, time_limit
from service.jobs.model import Job

_REPUBLISH_BATCH = 100
"""Maximum number of messages republished per call."""

_EXPIRY_BATCH = 500
"""Maximum number of expired entries removed per transaction."""


class RepairSide(StoreBase):
    """Operations of the sweeper and of ``aps requeue``."""

    def expired(self) -> list[Job]:
        """Requeues running jobs whose lease has expired and returns them. Jobs with a pending
        cancellation end as canceled, jobs past their time limit as failed.
        """
        error = time_limit(self.max_job_seconds).model_dump_json()
        return self._those(
            self._run("due", "leases"), "expire", self.max_job_seconds, self.ttl_seconds, error
        )

    def overdue(self) -> list[Job]:
        """Fails queued jobs whose deadline has passed and returns them."""
        error = DEADLINE_EXCEEDED.model_dump_json()
        return self._those(self._run("due", "deadlines"), "overdue", self.ttl_seconds, error)

    def dead(self) -> list[Job]:
        """Dead-lettered jobs, oldest first: jobs whose workers were lost at every attempt."""
        found = [
            self.get(raw.decode())
            for raw in cast("list[bytes]", self.redis.zrange(f"{self.prefix}dead", 0, -1))
        ]
        return [job for job in found if job is not None]

    def requeue(self, job_id: str) -> str:
        """Requeues a dead-lettered job. Returns 'queued'; or, when nothing was changed, the job's
        state, 'expired' or 'missing'.
        """
        return self._word("requeue", job_id)

    def unclaimed(self, prior: str, after_seconds: float, messages: int) -> list[Job]:
        """Queued jobs whose message must be republished: when the broker holds fewer ``messages``
        than jobs are queued, the missing number, oldest first, of those that were last announced at
        least ``after_seconds`` ago. Which job a message names does not matter: :meth:`take` picks
        the next one.
        """
        missing = min(
            self.redis.zcard(f"{self.prefix}waiting:{prior}") - messages, _REPUBLISH_BATCH
        )
        first = (
            self.redis.zrange(f"{self.prefix}waiting:{prior}", 0, missing - 1)
            if missing > 0
            else []
        )
        return self._those(cast("list[bytes]", first), "republish", after_seconds)

    def forget_expired(self) -> None:
        """Subtracts expired files from their tenants' storage totals, and removes expired records
        from the indexes.
        """
        while self._run("forget", "", _EXPIRY_BATCH):
            pass

    def lead(self, duty: str, seconds: float) -> bool:
        """Elects a leader: True for one caller per ``seconds``, which then performs ``duty``."""
        return bool(self._run("lead", duty, seconds))

    def orphaned_seconds(self, job_id: str) -> float:
        """Seconds since files under this id were first reported to have no record."""
        return float(self._word("orphan", job_id))

    def forget_orphan(self, job_id: str) -> None:
        """Removes the entry of orphaned files that have been deleted."""
        self.redis.zrem(f"{self.prefix}orphans", job_id)

    def _those(self, ids: list[bytes], script: str, *arguments: Any) -> list[Job]:
        changed = [raw.decode() for raw in ids if self._run(script, raw.decode(), *arguments)]
        return [job for job_id in changed if (job := self.get(job_id)) is not None]
