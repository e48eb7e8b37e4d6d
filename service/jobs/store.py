"""The job store: records, leases and histories in Redis, shared by the API and the workers.

The record holds a job's state; a Celery message only wakes a worker up. The worker then *claims* a
job, and each of its writes carries the claim's fence. Duplicate, late and lost messages are
therefore harmless; :meth:`RepairSide.expired` and :meth:`RepairSide.unclaimed` find the jobs whose
message must be republished.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

from aps_contract import Event
from service.jobs.admission import IdempotencyConflict, Standing, Terms
from service.jobs.base import pairs
from service.jobs.load import Load, read_load
from service.jobs.model import Job, first_id_at
from service.jobs.repair_side import RepairSide
from service.jobs.share_side import ShareSide
from service.jobs.worker_side import WorkerSide

ANY = Terms()
"""No limits: every job is accepted."""

_DESCRIPTION = {
    *("task", "spec", "inputs", "image_size", "output_size", "request_id", "traceparent"),
    *("estimated_seconds", "cancel_after_seconds", "max_running", "priority", "webhook", "batch"),
}
"""Fields of a job that are written once, at submission."""


BATCH, MAX_SCANNED = 100, 2000
"""Jobs read at a time when a list is filtered, and at most for one page."""


@dataclass(frozen=True)
class Wanted:
    """Which jobs a list contains."""

    states: frozenset[str] = frozenset()
    """Empty: any."""
    tasks: frozenset[str] = frozenset()
    """Empty: any."""
    after: datetime | None = None
    """Created at this time or later."""
    before: datetime | None = None
    """Created earlier."""

    def __contains__(self, job: Job) -> bool:
        return (not self.states or job.state in self.states) and (
            not self.tasks or job.task in self.tasks
        )


EVERYTHING = Wanted()


@dataclass(frozen=True)
class Page:
    """A page of jobs, newest first; ``cursor`` selects the next page, None on the last."""

    jobs: list[Job]
    cursor: str | None


class JobStore(WorkerSide, RepairSide, ShareSide):
    """The only place where job keys are read or written."""

    def submit(self, job: Job, terms: Terms = ANY) -> Standing:
        """Writes a new job. If its id or its idempotency key is already known, returns the
        earlier job's id instead.

        Raises:
            IdempotencyConflict, QuotaExceeded, QueueFull: a limit of ``terms`` is exceeded; nothing
                is written.
        """
        described = job.model_dump(mode="json", include=_DESCRIPTION, exclude_none=True)
        limits = (
            terms.max_queued,
            terms.max_backlog_seconds,
            terms.max_own_backlog_seconds,
            terms.max_stored_bytes,
        )
        answer = self._run(
            "submit",
            job.id,
            terms.entry(self.prefix, job.tenant),
            terms.fingerprint,
            terms.idempotency_seconds,
            *limits,
            sum(file.bytes for file in job.inputs.values()),
            job.prior,
            job.tenant,
            *pairs(described),
        )
        word, value = answer[0].decode(), answer[1].decode()
        terms.check(word, value, job)
        if word == "known":
            return Standing(value)
        record = iter(answer[2])
        return Standing(value, Job.from_hash(dict(zip(record, record, strict=True))), answer[3])

    def seal(self, job_id: str) -> None:
        """Completes the batch of a job: its receiver is told when all of the batch's jobs have
        ended.
        """
        self._run("seal", job_id)

    def submitted_before(self, terms: Terms, tenant: str) -> str | None:
        """The id of the job an earlier submission of this request created, or None.

        Raises:
            IdempotencyConflict: the key was used for another request.
        """
        entry = terms.entry(self.prefix, tenant)
        known = (
            cast("list[bytes | None]", self.redis.hmget(entry, ["fingerprint", "job"]))
            if entry
            else [None, None]
        )
        if known[0] is None or known[1] is None:
            return None
        if known[0].decode() != terms.fingerprint:
            raise IdempotencyConflict(known[1].decode())
        return known[1].decode()

    def page(
        self,
        limit: int = 20,
        cursor: str | None = None,
        tenant: str = "",
        wanted: Wanted = EVERYTHING,
    ) -> Page:
        """A tenant's jobs, newest first.

        A filtered page may contain fewer than ``limit`` jobs, as at most ``MAX_SCANNED`` are read;
        its cursor then continues the search.
        """
        key, last = f"{self.prefix}jobs:{tenant}", cursor
        lower = f"[{first_id_at(wanted.after)}" if wanted.after else "-"
        upper = f"({first_id_at(wanted.before)}" if wanted.before else "+"
        if cursor and (upper == "+" or cursor < upper[1:]):
            upper = f"({cursor}"
        batch = BATCH if wanted.states or wanted.tasks else limit
        found: list[Job] = []
        scanned, more = 0, True
        while more and len(found) < limit and scanned < MAX_SCANNED:
            ids = self._ids(key, upper, lower, batch + 1)
            more, ids = len(ids) > batch, ids[:batch]
            for place, job in enumerate(self.records(ids), 1):
                last = ids[place - 1]
                if job is not None and job in wanted:
                    found.append(job)
                if len(found) == limit:
                    more = more or place < len(ids)
                    break
            scanned += len(ids)
            upper = f"({last}"
        return Page(found, last if more else None)

    def _ids(self, key: str, upper: str, lower: str, count: int) -> list[str]:
        raw = cast("list[bytes]", self.redis.zrevrangebylex(key, upper, lower, 0, count))
        return [each.decode() for each in raw]

    def records(self, ids: Sequence[str]) -> list[Job | None]:
        """The records of jobs; None for those deleted meanwhile."""
        with self.redis.pipeline(transaction=False) as pipe:
            for job_id in ids:
                pipe.hgetall(self._key(job_id))
            records = pipe.execute()
        return [Job.from_hash(fields) if fields else None for fields in records]

    def queue_position(self, job: Job) -> int | None:
        """Number of queued jobs of the same tenant and prior ahead of this one; None unless it is
        queued.
        """
        queue = f"{self.prefix}queue:{job.prior}:{job.tenant}"
        return cast("int | None", self.redis.zrank(queue, job.id))

    def depth(self, prior: str) -> int:
        """Number of queued jobs of ``prior``."""
        return self.redis.zcard(f"{self.prefix}waiting:{prior}")

    def load(self, priors: Sequence[str]) -> Load:
        """Unfinished and finished work of ``priors``, for metrics and capabilities."""
        return read_load(self.redis, self.prefix, priors)

    def cancel(self, job_id: str) -> str:
        """Cancels a queued job immediately and requests cancellation of a running one. Returns the
        previous state, or 'missing'.
        """
        return self._word("cancel", job_id, self.ttl_seconds)

    def delete(self, job_id: str) -> Literal["deleted", "running", "missing"]:
        """Removes the record of a job, unless the job is running."""
        return cast(Literal["deleted", "running", "missing"], self._word("delete", job_id))

    def events(self, job_id: str, after: str = "0-0", count: int = 500) -> list[Event]:
        """Up to ``count`` events of the job's history after an event id."""
        return [
            event_from(raw_id, fields)
            for raw_id, fields in cast(
                "Any", self.redis.xrange(f"{self._key(job_id)}:events", f"({after}", "+", count)
            )
        ]

    def preview_file(self, job_id: str, step: int) -> str | None:
        """File name of a step's preview in the artifact store; None when it has none."""
        raw = cast("bytes | None", self.redis.hget(f"{self._key(job_id)}:previews", str(step)))
        return raw.decode() if raw else None

    def current_preview(self, job_id: str) -> bytes | None:
        """JPEG of the estimate within the job's current step, or None."""
        return cast("bytes | None", self.redis.get(f"{self._key(job_id)}:current"))


def event_from(raw_id: bytes, fields: dict[bytes, bytes]) -> Event:
    """Parses an entry of a job's event stream."""
    data = {**json.loads(fields[b"data"]), "version": int(fields[b"version"])}
    return Event(id=raw_id.decode(), type=fields[b"type"].decode(), data=data)
