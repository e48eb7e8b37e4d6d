"""The sweeper's side of the job store: finding what was lost, and ending what is over."""

from __future__ import annotations

from typing import Any, cast

from service.jobs.base import StoreBase
from service.jobs.failures import DEADLINE_EXCEEDED, time_limit
from service.jobs.model import Job

_RINGS = 100
"""Most messages that are repeated at a time."""

_FORGOTTEN = 500
"""Most entries forgotten in one transaction."""


class RepairSide(StoreBase):
    """What the sweeper and ``aps requeue`` do."""

    def expired(self) -> list[Job]:
        """Puts jobs of silent workers back into the queue and returns them; those that were to be
        canceled, or were over their time, have ended.
        """
        error = time_limit(self.max_job_seconds).model_dump_json()
        return self._those(
            self._run("due", "leases"), "expire", self.max_job_seconds, self.ttl_seconds, error
        )

    def overdue(self) -> list[Job]:
        """Ends waiting jobs whose deadline has passed and returns them."""
        error = DEADLINE_EXCEEDED.model_dump_json()
        return self._those(self._run("due", "deadlines"), "overdue", self.ttl_seconds, error)

    def dead(self) -> list[Job]:
        """Jobs that were given up because no worker survived them, oldest first."""
        found = [
            self.get(raw.decode())
            for raw in cast("list[bytes]", self.redis.zrange(f"{self.prefix}dead", 0, -1))
        ]
        return [job for job in found if job is not None]

    def requeue(self, job_id: str) -> str:
        """Gives a given-up job another life; returns 'queued', or its state, 'expired' or 'missing'
        where it stays as it is.
        """
        return self._word("requeue", job_id)

    def unclaimed(self, prior: str, after_seconds: float, messages: int) -> list[Job]:
        """Jobs that have waited this long while fewer ``messages`` are under way than jobs wait: as
        many as lack one, to be rung for once more. Which job a message names does not matter, see
        :meth:`take`.
        """
        lacking = min(self.redis.zcard(f"{self.prefix}waiting:{prior}") - messages, _RINGS)
        first = (
            self.redis.zrange(f"{self.prefix}waiting:{prior}", 0, lacking - 1)
            if lacking > 0
            else []
        )
        return self._those(cast("list[bytes]", first), "ring_again", after_seconds)

    def forget_expired(self) -> None:
        """Settles the accounts of files whose time is over, and takes ids of expired records off
        the lists.
        """
        while self._run("forget", "", _FORGOTTEN):
            pass

    def lead(self, duty: str, seconds: float) -> bool:
        """True for one caller in ``seconds``: the one that does this duty."""
        return bool(self._run("lead", duty, seconds))

    def orphaned_seconds(self, job_id: str) -> float:
        """How long files under this id have been known to have no record."""
        return float(self._word("orphan", job_id))

    def forget_orphan(self, job_id: str) -> None:
        """The files are gone."""
        self.redis.zrem(f"{self.prefix}orphans", job_id)

    def _those(self, ids: list[bytes], script: str, *arguments: Any) -> list[Job]:
        changed = [raw.decode() for raw in ids if self._run(script, raw.decode(), *arguments)]
        return [job for job_id in changed if (job := self.get(job_id)) is not None]
