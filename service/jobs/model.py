"""Records of a job and of its files, as they are stored in Redis."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from aps_contract import JobError, JobState, Phase, Priority, Progress, Webhook


class Artifact(BaseModel):
    """A stored file of a job."""

    model_config = ConfigDict(frozen=True)

    name: str
    file: str
    """File name in the artifact store: the SHA-256 of the content, and a suffix."""
    media_type: str
    bytes: int


class Job(BaseModel):
    """The job record. ``spec`` says what to compute; the other fields track the job itself."""

    model_config = ConfigDict(frozen=True)

    id: str
    task: str
    prior: str
    spec: dict[str, Any]
    inputs: dict[str, Artifact]
    image_size: tuple[int, int] | None = None
    """Width and height of the upload, in pixels."""
    output_size: tuple[int, int] | None = None
    estimated_seconds: float | None = None
    tenant: str = ""
    """The job's owner; empty when API keys are off."""
    max_running: int | None = None
    """Maximum number of the tenant's jobs that run at the same time."""
    priority: Priority = Priority.NORMAL
    request_id: str = ""
    traceparent: str = ""
    """The caller's W3C trace context."""
    cancel_after_seconds: int | None = None
    """Deadline in seconds after ``created_at``."""

    webhook: Webhook | None = None
    batch: str | None = None
    """The batch that it was submitted with."""

    state: JobState = JobState.QUEUED
    phase: Phase | None = None
    version: int = 0
    """Incremented by every visible change."""
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    """When the artifacts of a finished job expire."""
    shared_until: datetime | None = None
    """When the last link to the result ends or ended; None if there is none."""
    deadline: datetime | None = None
    """When an unfinished job fails, from ``cancel_after_seconds``."""
    attempt: int = 0
    stale_attempts: int = 0
    """Starts since the last finished step."""
    stopped_by: Literal["", "drained", "lost"] = ""
    """How the previous attempt ended: its worker drained and released the job, or was lost."""
    cancel_requested: bool = False
    progress: Progress | None = None
    resumed_from_step: int | None = None
    error: JobError | None = None
    artifacts: list[Artifact] = []
    metrics: dict[str, Any] = {}

    def artifact(self, name: str) -> Artifact | None:
        """The input or result file called ``name``, or None."""
        return next(
            (file for file in (*self.inputs.values(), *self.artifacts) if file.name == name), None
        )

    @property
    def trace_id(self) -> str:
        """Trace id from ``traceparent``; empty without one."""
        return self.traceparent[3:35]

    def expired(self, now: datetime) -> bool:
        """True when the artifacts have expired. ``now`` must come from the store's clock,
        :meth:`service.jobs.JobStore.now`.
        """
        return self.expires_at is not None and self.expires_at < now

    @classmethod
    def from_hash(cls, fields: Mapping[bytes, bytes]) -> Job:
        """Parses the record's Redis hash."""
        text = {name.decode(): value.decode() for name, value in fields.items()}
        return cls.model_validate(
            {name: json.loads(value) if name in _JSON else value for name, value in text.items()}
        )


_JSON = frozenset(
    {
        "spec",
        "inputs",
        "image_size",
        "output_size",
        "progress",
        "error",
        "artifacts",
        "metrics",
        "webhook",
    }
)
"""Fields stored in Redis as JSON; the others are plain text, which the transitions can compare."""


def first_id_at(moment: datetime) -> str:
    """The smallest job id of a moment: ids made earlier sort before it, later ones after it."""
    text = f"{max(0, int(moment.timestamp() * 1000)):012x}"[-12:]
    return f"{text[:8]}-{text[8:]}"


def new_job_id() -> str:
    """A random UUIDv7; ids sort by creation time."""
    value = (
        (time.time_ns() // 1_000_000) << 80
        | 0x7 << 76
        | secrets.randbits(76) & ~(0b11 << 62)
        | 0b10 << 62
    )
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
