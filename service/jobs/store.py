"""The job store: records, leases and histories in Redis, shared by the API and the workers.

A message in the queue is only a doorbell. The record is the truth: a worker that hears the bell
*claims* the job, and everything it writes afterwards carries the claim's fence. Messages that come
twice, late or never are therefore harmless; :meth:`JobStore.expired` and :meth:`JobStore.unclaimed`
find the jobs that need another ring.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, cast

from redis import Redis

from service.jobs import transitions
from service.jobs.admission import IdempotencyConflict, QueueFull, QuotaExceeded, Standing, Terms
from service.jobs.load import Load, read_load
from service.jobs.model import Artifact, Event, Job, JobError, JobState, Phase, Progress

Control = Literal["run", "cancel", "deadline", "lost"]
"""What a worker shall do: go on, stop because the user asked or its deadline passed, or stop
because it is no longer its job.
"""

Refusal = Literal["missing", "finished", "leased", "quota", "canceled", "overdue", "poisoned"]

WORKER_LOST = JobError(
    code="worker_lost",
    title="The worker was lost",
    detail=(
        "Workers stopped repeatedly while computing this job and none finished a step; it is not"
        " tried again."
    ),
)

DEADLINE_EXCEEDED = JobError(
    code="deadline_exceeded",
    title="The deadline has passed",
    detail=(
        "The job was not finished within the time after which its result is of no use"
        " (Cancel-After)."
    ),
)

ANY = Terms()
"""No terms: every job is let in."""

_DESCRIPTION = {
    *("task", "spec", "inputs", "image_size", "output_size", "request_id", "traceparent"),
    *("estimated_seconds", "cancel_after_seconds", "max_running", "priority", "webhook"),
}
"""Fields of a job that are written when it is submitted, and never again."""

_LOOK_AHEAD = 100
"""How far behind the head of the queue a worker looks for a job that may run: the first ones may be
held back by quotas.
"""

_RINGS = 100
"""Most messages that are repeated at a time."""

_CHECKPOINT = struct.Struct("<II")
"""Step and CRC-32 before a checkpoint's bytes."""


@dataclass(frozen=True)
class Claim:
    """The right to work on a job, until somebody else holds a newer fence."""

    job_id: str
    fence: int


@dataclass(frozen=True)
class Page:
    """A page of jobs, newest first; ``cursor`` leads to the next one."""

    jobs: list[Job]
    cursor: str | None


class JobStore:
    """The only place where job keys are read or written."""

    def __init__(
        self,
        redis: Redis,
        *,
        prefix: str = "aps:",
        lease_seconds: float = 30,
        ttl_seconds: int = 86_400,
        max_attempts: int = 3,
    ) -> None:
        self.redis, self.prefix = redis, prefix
        self.lease_seconds, self.ttl_seconds, self.max_attempts = (
            lease_seconds,
            ttl_seconds,
            max_attempts,
        )
        self._scripts = {
            name: redis.register_script(source) for name, source in transitions.SCRIPTS.items()
        }

    # -- the API's side ---------------------------------------------------------------------------

    def submit(self, job: Job, terms: Terms = ANY) -> Standing:
        """Writes a new job; it is durable when this returns. When its id or the idempotency key is
        known already, the earlier one stands.

        Raises:
            IdempotencyConflict, QuotaExceeded, QueueFull: the terms are not met; nothing is
                written.
        """
        described = job.model_dump(mode="json", include=_DESCRIPTION, exclude_none=True)
        entry = terms.entry(self.prefix, job.tenant)
        limits = (terms.idempotency_seconds, terms.max_queued, terms.max_backlog_seconds)
        answer = self._run(
            "submit",
            job.id,
            entry,
            terms.fingerprint,
            *limits,
            job.prior,
            job.tenant,
            *_pairs(described),
        )
        word, value = answer[0].decode(), answer[1].decode()
        if word == "conflict":
            raise IdempotencyConflict(value)
        if word == "quota":
            raise QuotaExceeded(
                f"{value} of your jobs are waiting already, as many as you may have; wait for one"
                " to start.",
                job.estimated_seconds or 1,
            )
        if word == "full":
            behind = float(value) - terms.max_backlog_seconds
            raise QueueFull(
                f"About {float(value):.0f} s of work are waiting, more than is promised here; try"
                " again later.",
                behind,
            )
        if word == "known":
            return Standing(value)
        record = iter(answer[2])
        return Standing(value, Job.from_hash(dict(zip(record, record, strict=True))), answer[3])

    def submitted_before(self, terms: Terms, tenant: str) -> str | None:
        """The id of the job this request became when it was sent before.

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

    def get(self, job_id: str) -> Job | None:
        """The record, or None."""
        fields = cast("dict[bytes, bytes]", self.redis.hgetall(self._key(job_id)))
        return Job.from_hash(fields) if fields else None

    def page(self, limit: int = 20, cursor: str | None = None, tenant: str = "") -> Page:
        """A tenant's jobs, newest first."""
        upper = f"({cursor}" if cursor else "+"
        ids = [
            raw.decode()
            for raw in cast(
                "list[bytes]",
                self.redis.zrevrangebylex(f"{self.prefix}jobs:{tenant}", upper, "-", 0, limit + 1),
            )
        ]
        with self.redis.pipeline(transaction=False) as pipe:
            for job_id in ids[:limit]:
                pipe.hgetall(self._key(job_id))
            found = pipe.execute()
        return Page(
            [Job.from_hash(fields) for fields in found if fields],
            ids[limit - 1] if len(ids) > limit else None,
        )

    def queue_position(self, job: Job) -> int | None:
        """How many jobs of the same prior come first; None when the job does not wait."""
        return cast("int | None", self.redis.zrank(f"{self.prefix}queued:{job.prior}", job.id))

    def depth(self, prior: str) -> int:
        """Jobs waiting for ``prior``."""
        return self.redis.zcard(f"{self.prefix}queued:{prior}")

    def load(self, priors: Sequence[str]) -> Load:
        """How much there is to do."""
        return read_load(self.redis, self.prefix, priors)

    def cancel(self, job_id: str) -> str:
        """Cancels a waiting job at once and asks a running one to stop; returns the state before,
        or 'missing'.
        """
        return self._word("cancel", job_id, self.ttl_seconds)

    def delete(self, job_id: str) -> Literal["deleted", "running", "missing"]:
        """Removes the record of a job that does not run."""
        return cast(Literal["deleted", "running", "missing"], self._word("delete", job_id))

    def events(self, job_id: str, after: str = "0-0", count: int = 500) -> list[Event]:
        """The job's history after an event id."""
        return [
            event_from(raw_id, fields)
            for raw_id, fields in cast(
                "Any", self.redis.xrange(f"{self._key(job_id)}:events", f"({after}", "+", count)
            )
        ]

    def preview_file(self, job_id: str, step: int) -> str | None:
        """Name of a step's preview in the artifact store."""
        raw = cast("bytes | None", self.redis.hget(f"{self._key(job_id)}:previews", str(step)))
        return raw.decode() if raw else None

    # -- the worker's side ------------------------------------------------------------------------

    def take(self, prior: str, owner: str) -> Claim | None:
        """The job a worker does next: the one its predecessor in the same parent left, else the
        first in the queue that may run.
        """
        left = cast("bytes | None", self.redis.hget(f"{self.prefix}holders", owner))
        waiting = cast(
            "list[bytes]", self.redis.zrange(f"{self.prefix}queued:{prior}", 0, _LOOK_AHEAD)
        )
        answers = (self.claim(raw.decode(), owner) for raw in (left, *waiting) if raw is not None)
        return next((answer for answer in answers if isinstance(answer, Claim)), None)

    def claim(self, job_id: str, owner: str) -> Claim | Refusal:
        """Takes a job under a new fence, or says why not. ``owner`` names the worker's parent
        process.
        """
        errors = (WORKER_LOST.model_dump_json(), DEADLINE_EXCEEDED.model_dump_json())
        answer = self._run(
            "claim", job_id, owner, self.lease_seconds, self.max_attempts, self.ttl_seconds, *errors
        )
        return Claim(job_id, answer) if isinstance(answer, int) else cast(Refusal, answer.decode())

    def heartbeat(self, claim: Claim) -> Control:
        """Extends the lease."""
        return cast(Control, self._word("heartbeat", claim.job_id, claim.fence, self.lease_seconds))

    def enter(self, claim: Claim, phase: Phase) -> bool:
        """Tells what the job is doing; False when the claim is lost."""
        return bool(self._run("enter", claim.job_id, claim.fence, phase))

    def step(
        self,
        claim: Claim,
        progress: Progress,
        event: dict[str, Any],
        checkpoint: bytes,
        preview_file: str = "",
    ) -> Control:
        """A finished reverse step in one round trip: lease, progress, event, checkpoint,
        preview.
        """
        saved = _CHECKPOINT.pack(progress.step, zlib.crc32(checkpoint)) + checkpoint
        arguments = (
            claim.fence,
            self.lease_seconds,
            progress.step,
            progress.model_dump_json(),
            json.dumps(event),
            saved,
            preview_file,
        )
        return cast(Control, self._word("step", claim.job_id, *arguments))

    def load_checkpoint(self, job_id: str) -> tuple[int, bytes] | None:
        """The newest undamaged checkpoint and its step."""
        slots = cast("list[bytes]", self.redis.hvals(f"{self._key(job_id)}:checkpoint"))
        sound = []
        for slot in slots:
            step, checksum = _CHECKPOINT.unpack_from(slot)
            if zlib.crc32(slot[_CHECKPOINT.size :]) == checksum:
                sound.append((step, slot[_CHECKPOINT.size :]))
        return max(sound, default=None)

    def succeed(
        self,
        claim: Claim,
        artifacts: list[Artifact],
        metrics: dict[str, Any],
        resumed_from_step: int | None,
    ) -> bool:
        """Ends the job with its artifacts, which must be stored already; False when the claim is
        lost.
        """
        fields = {
            "artifacts": [artifact.model_dump() for artifact in artifacts],
            "metrics": metrics,
            "resumed_from_step": resumed_from_step,
        }
        return self._finish(claim, JobState.SUCCEEDED, fields)

    def fail(self, claim: Claim, error: JobError) -> bool:
        """Ends the job with an error; False when the claim is lost."""
        return self._finish(claim, JobState.FAILED, {"error": error.model_dump()})

    def canceled(self, claim: Claim, artifacts: list[Artifact]) -> bool:
        """Ends the job as the user wished; ``artifacts`` may hold what was there by then."""
        return self._finish(
            claim,
            JobState.CANCELED,
            {"artifacts": [artifact.model_dump() for artifact in artifacts]},
        )

    def release(self, claim: Claim) -> bool:
        """Hands the job back to the queue; False when the claim is lost."""
        return bool(self._run("release", claim.job_id, claim.fence))

    # -- repair -----------------------------------------------------------------------------------

    def expired(self) -> list[Job]:
        """Puts jobs of silent workers back into the queue and returns them, to be rung for; those
        that were to be canceled end.
        """
        return self._those(self._run("due", "leases"), "expire", self.ttl_seconds)

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
        lacking = min(self.depth(prior) - messages, _RINGS)
        first = (
            self.redis.zrange(f"{self.prefix}queued:{prior}", 0, lacking - 1) if lacking > 0 else []
        )
        return self._those(cast("list[bytes]", first), "ring_again", after_seconds)

    def forget_expired(self) -> None:
        """Takes ids whose record has expired off the lists, oldest first."""
        for raw in cast("list[bytes]", self.redis.zrange(f"{self.prefix}dead", 0, 99)):
            if not self.redis.exists(self._key(raw.decode())):
                self.redis.zrem(f"{self.prefix}dead", raw)
        for tenant in cast("set[bytes]", self.redis.smembers(f"{self.prefix}tenants")):
            index = f"{self.prefix}jobs:{tenant.decode()}"
            for raw in cast("list[bytes]", self.redis.zrange(index, 0, 99)):
                if not self.redis.exists(self._key(raw.decode())):
                    self.redis.zrem(index, raw)

    def lead(self, duty: str, seconds: float) -> bool:
        """True for one caller in ``seconds``: the one that does this duty."""
        return bool(self._run("lead", duty, seconds))

    def now(self) -> datetime:
        """The store's clock, the only one that decides whether something is over."""
        return datetime.fromtimestamp(float(self._word("now", "")), UTC)

    def orphaned_seconds(self, job_id: str) -> float:
        """How long files under this id have been known to have no record."""
        return float(self._word("orphan", job_id))

    def forget_orphan(self, job_id: str) -> None:
        """The files are gone."""
        self.redis.zrem(f"{self.prefix}orphans", job_id)

    # ---------------------------------------------------------------------------------------------

    def _those(self, ids: list[bytes], script: str, *arguments: Any) -> list[Job]:
        changed = [raw.decode() for raw in ids if self._run(script, raw.decode(), *arguments)]
        return [job for job_id in changed if (job := self.get(job_id)) is not None]

    def _finish(self, claim: Claim, state: JobState, fields: dict[str, Any]) -> bool:
        return bool(
            self._run("finish", claim.job_id, claim.fence, state, self.ttl_seconds, *_pairs(fields))
        )

    def _run(self, script: str, job_id: str, *arguments: Any) -> Any:
        return self._scripts[script](keys=[self.prefix], args=[job_id, *arguments])

    def _word(self, script: str, job_id: str, *arguments: Any) -> str:
        return cast(bytes, self._run(script, job_id, *arguments)).decode()

    def _key(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}"


def event_from(raw_id: bytes, fields: dict[bytes, bytes]) -> Event:
    """An entry of a job's stream."""
    data = {**json.loads(fields[b"data"]), "version": int(fields[b"version"])}
    return Event(id=raw_id.decode(), type=fields[b"type"].decode(), data=data)


def _pairs(fields: dict[str, Any]) -> list[str]:
    """Field, value, field, value, as they lie in the record."""
    return [
        text
        for name, value in fields.items()
        if value is not None
        for text in (name, value if isinstance(value, str) else json.dumps(value))
    ]
