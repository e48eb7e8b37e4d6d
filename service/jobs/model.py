"""A job as everyone sees it: states, phases, progress, error, artifacts."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from aps_core.errors import APSError


class JobState(StrEnum):
    """``queued -> running -> succeeded | failed | canceled``; a lost job goes back to
    ``queued``.
    """

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def terminal(self) -> bool:
        """True when nothing about the job can change any more."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


class Priority(StrEnum):
    """A class goes before, or behind, jobs of the same tenant submitted up to an hour earlier, or
    later; so no job starves.
    """

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Phase(StrEnum):
    """What a job that is not finished is doing."""

    WAITING = "waiting"
    PREEMPTED = "preempted"
    LOADING = "loading"
    SAMPLING = "sampling"
    STORING = "storing"
    CANCELING = "canceling"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Progress(_Frozen):
    """Where the last finished reverse step left the job."""

    step: int
    total: int
    misfit: float | None = None
    """Data misfit, in the measurement's own units; ``noise_floor`` is what the truth would have."""
    noise_floor: float | None = None
    text: str | None = None
    """The answer so far, a box for every token not decided."""
    seconds: float = 0.0
    """Wall time of the step."""


class JobError(_Frozen):
    """Why a job failed; the same words as an HTTP problem."""

    code: str
    title: str
    detail: str
    retryable: bool = False

    @classmethod
    def of(cls, error: APSError) -> JobError:
        """The description of one of the library's errors."""
        return cls(code=error.code, title=error.title, detail=str(error), retryable=error.retryable)


class Artifact(_Frozen):
    """A stored file of a job."""

    name: str
    file: str
    """Name in the artifact store: the SHA-256 of the content and a suffix."""
    media_type: str
    bytes: int


MAX_URL = 2000
"""Characters of an address."""

WebhookEvent = Literal["job.started", "job.progress", "job.completed"]
WEBHOOK_EVENTS: tuple[WebhookEvent, ...] = get_args(WebhookEvent)


class Webhook(_Frozen):
    """Whom to tell about a job."""

    url: str = Field(min_length=1, max_length=MAX_URL)
    events: list[WebhookEvent] = Field(
        ["job.completed"],
        min_length=1,
        max_length=len(WEBHOOK_EVENTS),
        json_schema_extra={"uniqueItems": True},
    )

    @field_validator("events")
    @classmethod
    def _unique(cls, events: list[WebhookEvent]) -> list[WebhookEvent]:
        if len(set(events)) < len(events):
            raise ValueError("Each kind of message can be named once.")
        return events


class Job(_Frozen):
    """The whole record. What a job computes is ``spec``; everything else is how it travels."""

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
    """Whose job it is; empty where everybody may do everything."""
    max_running: int | None = None
    """How many jobs of the tenant may run at a time."""
    priority: Priority = Priority.NORMAL
    request_id: str = ""
    traceparent: str = ""
    """Where the request stands in its caller's trace (W3C)."""
    cancel_after_seconds: int | None = None
    """Time after which the client has no use for the result, counted from ``created_at``."""

    webhook: Webhook | None = None

    state: JobState = JobState.QUEUED
    phase: Phase | None = None
    version: int = 0
    """Grows with every visible change."""
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    """When the artifacts of a finished job go."""
    deadline: datetime | None = None
    """When the result is of no more use."""
    attempt: int = 0
    stale_attempts: int = 0
    """Starts since the last finished step."""
    stopped_by: Literal["", "drained", "lost"] = ""
    """What ended the attempt before: its worker handed the job back, or was lost."""
    cancel_requested: bool = False
    progress: Progress | None = None
    resumed_from_step: int | None = None
    error: JobError | None = None
    artifacts: list[Artifact] = []
    metrics: dict[str, Any] = {}

    def artifact(self, name: str) -> Artifact | None:
        """The file called ``name``, be it input or result, if the job has one."""
        return next(
            (file for file in (*self.inputs.values(), *self.artifacts) if file.name == name), None
        )

    @property
    def trace_id(self) -> str:
        """The trace's id out of ``traceparent``; empty without one."""
        return self.traceparent[3:35]

    def expired(self, now: datetime) -> bool:
        """True when the artifacts have been, or may be, removed; ``now`` is
        :meth:`service.jobs.JobStore.now`, whatever the clock of this process says.
        """
        return self.expires_at is not None and self.expires_at < now

    @classmethod
    def from_hash(cls, fields: Mapping[bytes, bytes]) -> Job:
        """Reads the record as it lies in Redis."""
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
"""Fields that lie in Redis as JSON; the others are plain text, which the transitions compare."""


class Event(_Frozen):
    """One line of a job's history: ``status``, ``progress``, ``inner`` or ``done``."""

    id: str
    type: str
    data: dict[str, Any]


def new_job_id() -> str:
    """A UUIDv7: unguessable, and sorted by creation time."""
    value = (
        (time.time_ns() // 1_000_000) << 80
        | 0x7 << 76
        | secrets.randbits(76) & ~(0b11 << 62)
        | 0b10 << 62
    )
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
