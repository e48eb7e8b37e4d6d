"""What clients see: a job, its record with links and without how it travels; and a problem, when
there is one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.jobs import Artifact, Job, JobError, JobState, Phase, Priority, Progress


class ArtifactView(BaseModel):
    """A file of a job."""

    name: str
    role: Literal["input", "result"]
    media_type: str
    bytes: int
    sha256: str
    url: str


class JobView(BaseModel):
    """A job. Follow its links rather than building them."""

    id: str
    task: str
    prior: str
    state: JobState
    phase: Phase | None = Field(description="What an unfinished job is doing.")
    version: int = Field(description="Grows with every change.")
    priority: Priority
    queue_position: int | None = Field(
        description="Own jobs that come first, while this one waits."
    )
    estimated_seconds: float | None = Field(description="Predicted computing time.")
    progress: Progress | None
    attempt: int
    resumed_from_step: int | None = Field(
        description="Step from which the last attempt continued an interrupted one."
    )
    cancel_requested: bool
    deadline: datetime | None = Field(
        description="When the result is of no more use, and the job fails."
    )
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None = Field(description="When the artifacts of a finished job go.")
    image_size: tuple[int, int] | None = Field(description="Width and height of the upload.")
    output_size: tuple[int, int] | None = Field(
        description="Width and height of the result; null for text."
    )
    spec: dict[str, Any]
    error: JobError | None
    artifacts: list[ArtifactView]
    metrics: dict[str, Any]
    request_id: str
    traceparent: str
    cancel_after_seconds: int | None = Field(
        description="Time after which the client has no use for the result."
    )
    urls: dict[str, str]


class StoredPicture(BaseModel):
    """A picture that jobs may name as ``sha256:`` and its hash."""

    sha256: str = Field(
        description=(
            "Of the PNG that is stored, not of the file that was sent: pictures are always written"
            " anew."
        )
    )
    media_type: str
    bytes: int
    width: int
    height: int
    has_alpha: bool
    expires_at: datetime


class JobPage(BaseModel):
    """Jobs, newest first."""

    jobs: list[JobView]
    next: str | None = Field(description="Link to the next page.")


class FieldError(BaseModel):
    """One field that is wrong."""

    pointer: str = Field(description="JSON pointer into the spec.")
    detail: str


class Problem(BaseModel):
    """RFC 9457 problem details."""

    type: str = Field(
        description="Stable URI of the kind of problem: urn:aps:problem: and the code."
    )
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable and machine-readable.")
    retryable: bool = Field(False, description="Whether the same request may succeed later.")
    errors: list[FieldError] = []
    request_id: str = ""


def view(job: Job, queue_position: int | None) -> JobView:
    """What clients see of ``job``."""
    base = f"/v1/jobs/{job.id}"
    return JobView(
        **job.model_dump(include=set(JobView.model_fields) - {"artifacts"}),
        queue_position=queue_position,
        artifacts=[
            *(_artifact(base, file, "input") for file in job.inputs.values()),
            *(_artifact(base, file, "result") for file in job.artifacts),
        ],
        urls={
            "self": base,
            "events": f"{base}/events",
            "cancel": f"{base}/cancel",
            "previews": f"{base}/previews/{{step}}",
        },
    )


def _artifact(base: str, file: Artifact, role: Literal["input", "result"]) -> ArtifactView:
    return ArtifactView(
        name=file.name,
        role=role,
        media_type=file.media_type,
        bytes=file.bytes,
        sha256=file.file.partition(".")[0],
        url=f"{base}/artifacts/{file.name}",
    )


def retry_after(job: Job | JobView) -> str:
    """Seconds until asking again makes sense: about a step's time."""
    return str(max(1, round(job.progress.seconds if job.progress else 1)))
