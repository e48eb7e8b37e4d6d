"""The worker's side of the job store: claims jobs and updates them under the claim's fence."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Literal, cast

from aps_contract import JobError, JobState, Phase, Progress
from service.jobs.base import StoreBase, pairs
from service.jobs.failures import DEADLINE_EXCEEDED, WORKER_LOST, time_limit
from service.jobs.model import Artifact

Control = Literal["run", "cancel", "deadline", "lost"]
"""Instruction to the worker: continue, stop because of a cancellation or a passed deadline, or stop
because the claim is lost.
"""

Refusal = Literal[
    "missing", "finished", "leased", "quota", "canceled", "overdue", "overlong", "poisoned"
]

_CHECKPOINT = struct.Struct("<II")
"""Step and CRC-32 before a checkpoint's bytes."""


@dataclass(frozen=True)
class Claim:
    """The right to change a job, valid until another worker holds a newer fence."""

    job_id: str
    fence: int


class WorkerSide(StoreBase):
    """Operations of a worker."""

    def take(self, prior: str, owner: str) -> Claim | None:
        """Claims the next job: the unfinished job of the previous child of the same parent, else
        the first runnable job of the tenant that is next in the fair schedule. None if there is
        none.
        """
        while (answer := self._run("take", prior, owner, *self._terms())) == [b"more"]:
            pass
        return Claim(answer[0].decode(), answer[1]) if answer else None

    def claim(self, job_id: str, owner: str) -> Claim | Refusal:
        """Claims a given job under a new fence, or returns the reason for refusal. ``owner`` names
        the worker's parent process.
        """
        answer = self._run("claim", job_id, owner, *self._terms())
        return Claim(job_id, answer) if isinstance(answer, int) else cast(Refusal, answer.decode())

    def heartbeat(self, claim: Claim) -> Control:
        """Renews the lease."""
        return cast(Control, self._word("heartbeat", claim.job_id, claim.fence, self.lease_seconds))

    def pulse(self, claim: Claim, event: dict[str, Any], preview: bytes = b"") -> Control:
        """Renews the lease and emits an event with progress inside a reverse step. ``preview``, a
        small JPEG, replaces the one before; it is dropped when the step ends.
        """
        arguments = (claim.fence, self.lease_seconds, json.dumps(event), preview)
        return cast(Control, self._word("pulse", claim.job_id, *arguments))

    def enter(self, claim: Claim, phase: Phase) -> bool:
        """Sets the job's phase; False when the claim is lost."""
        return bool(self._run("enter", claim.job_id, claim.fence, phase))

    def step(
        self,
        claim: Claim,
        progress: Progress,
        event: dict[str, Any],
        checkpoint: bytes,
        preview_file: str = "",
        preview_bytes: int = 0,
    ) -> Control:
        """Records a finished reverse step in one round trip: renews the lease and stores progress,
        event, checkpoint and preview. With an empty ``checkpoint``, the last one is kept, and the
        attempt counts as failed if it ends here: the next one gets no farther.
        """
        head = _CHECKPOINT.pack(progress.step, zlib.crc32(checkpoint))
        saved = head + checkpoint if checkpoint else b""
        arguments = (
            claim.fence,
            self.lease_seconds,
            progress.step,
            progress.model_dump_json(),
            json.dumps(event),
            saved,
            preview_file,
            preview_bytes,
        )
        return cast(Control, self._word("step", claim.job_id, *arguments))

    def load_checkpoint(self, job_id: str) -> tuple[int, bytes] | None:
        """The newest intact checkpoint and its step, or None."""
        slots = cast("list[bytes]", self.redis.hvals(f"{self._key(job_id)}:checkpoint"))
        intact = []
        for slot in slots:
            step, checksum = _CHECKPOINT.unpack_from(slot)
            if zlib.crc32(slot[_CHECKPOINT.size :]) == checksum:
                intact.append((step, slot[_CHECKPOINT.size :]))
        return max(intact, default=None)

    def succeed(
        self,
        claim: Claim,
        artifacts: list[Artifact],
        metrics: dict[str, Any],
        resumed_from_step: int | None,
    ) -> bool:
        """Ends the job as succeeded; its artifacts must already be stored. False when the claim is
        lost.
        """
        fields = {
            "artifacts": [artifact.model_dump() for artifact in artifacts],
            "metrics": metrics,
            "resumed_from_step": resumed_from_step,
        }
        return self._finish(claim, JobState.SUCCEEDED, fields)

    def fail(self, claim: Claim, error: JobError) -> bool:
        """Ends the job as failed; False when the claim is lost."""
        return self._finish(claim, JobState.FAILED, {"error": error.model_dump()})

    def canceled(self, claim: Claim, artifacts: list[Artifact]) -> bool:
        """Ends the job as canceled, with any artifacts it had produced; False when the claim is
        lost.
        """
        return self._finish(
            claim,
            JobState.CANCELED,
            {"artifacts": [artifact.model_dump() for artifact in artifacts]},
        )

    def release(self, claim: Claim) -> bool:
        """Returns the job to the queue; False when the claim is lost."""
        return bool(self._run("release", claim.job_id, claim.fence))

    def _terms(self) -> tuple[Any, ...]:
        limits = (self.lease_seconds, self.max_attempts, self.max_job_seconds, self.ttl_seconds)
        errors = (WORKER_LOST, DEADLINE_EXCEEDED, time_limit(self.max_job_seconds))
        return *limits, *(error.model_dump_json() for error in errors)

    def _finish(self, claim: Claim, state: JobState, fields: dict[str, Any]) -> bool:
        return bool(
            self._run("finish", claim.job_id, claim.fence, state, self.ttl_seconds, *pairs(fields))
        )
