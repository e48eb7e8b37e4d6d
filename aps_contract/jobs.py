"""A job as clients see it: state, phase, progress, error and files."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class JobState(StrEnum):
    """``queued -> running -> succeeded | failed | canceled``. A job whose worker is lost returns
    to ``queued``.
    """

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def terminal(self) -> bool:
        """True for the final states."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


class Priority(StrEnum):
    """Order among one tenant's jobs: ``high`` advances a job by an hour of submission time, ``low``
    delays it by one. The shift is bounded, so no job starves.
    """

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Phase(StrEnum):
    """Current activity of an unfinished job."""

    WAITING = "waiting"
    PREEMPTED = "preempted"
    LOADING = "loading"
    SAMPLING = "sampling"
    STORING = "storing"
    CANCELING = "canceling"


class Progress(BaseModel):
    """State after the last finished reverse step."""

    model_config = ConfigDict(frozen=True)

    step: int = Field(description="Finished reverse steps.")
    total: int = Field(description="All reverse steps.")
    misfit: float | None = Field(
        None,
        description="Deviation of the degraded estimate from the measurement, in its units.",
    )
    noise_floor: float | None = Field(None, description="Expected misfit of the true picture.")
    text: str | None = Field(
        None, description="The text so far, with a box character for each undecided token."
    )
    seconds: float = Field(0.0, description="Wall time of the step.")
    seconds_left: float | None = Field(
        None, description="Predicted seconds until the last step ends."
    )


class JobError(BaseModel):
    """Why a job failed, with the fields of an HTTP problem."""

    model_config = ConfigDict(frozen=True)

    code: str = Field(description="Stable and machine-readable.")
    title: str = Field(description="Name of the kind of problem.")
    detail: str = Field(description="What went wrong.")
    retryable: bool = Field(False, description="Whether the same job may succeed later.")


class ArtifactView(BaseModel):
    """A file of a job."""

    name: str = Field(description="File name, unique within the job.")
    role: Literal["input", "result"] = Field(
        description="Whether it was sent with the job or made by it."
    )
    media_type: str = Field(description="MIME type.")
    bytes: int = Field(description="Size in bytes.")
    sha256: str = Field(description="Hash of the file, in hexadecimal.")
    url: str = Field(description="Where to download it.")


class JobView(BaseModel):
    """A job. Use its links instead of constructing URLs."""

    id: str = Field(description="Unique id; ids sort by time of submission.")
    task: str = Field(description="Task: 'restore', 'edit', 'stylize', 'generate' or 'guide'.")
    prior: str = Field(description="Prior that is sampled.")
    state: JobState = Field(description="State; the last three are final.")
    phase: Phase | None = Field(description="Current activity of an unfinished job.")
    version: int = Field(description="Incremented by every change.")
    priority: Priority = Field(description="Queue that the job waits in.")
    batch: str | None = Field(None, description="Id of the batch that it was submitted with.")
    queue_position: int | None = Field(
        description="Number of your jobs ahead of this one while it is queued."
    )
    estimated_seconds: float | None = Field(description="Predicted computing time.")
    progress: Progress | None = Field(
        description="State after the last finished reverse step; null before the first."
    )
    attempt: int = Field(description="Number of the current or last attempt; 0 before the first.")
    resumed_from_step: int | None = Field(
        description="Step from which the last attempt continued an interrupted one."
    )
    cancel_requested: bool = Field(description="Whether somebody asked to cancel it.")
    deadline: datetime | None = Field(
        description="Time at which the job fails if it has not finished."
    )
    created_at: datetime | None = Field(description="When it was submitted.")
    started_at: datetime | None = Field(description="When its first attempt began.")
    finished_at: datetime | None = Field(description="When it ended.")
    expires_at: datetime | None = Field(description="When the artifacts of a finished job expire.")
    shared_until: datetime | None = Field(
        None, description="When the last link to the result ends or ended; null if there is none."
    )
    image_size: tuple[int, int] | None = Field(description="Width and height of the upload.")
    output_size: tuple[int, int] | None = Field(
        description="Width and height of the result; null for text."
    )
    spec: dict[str, Any] = Field(
        description="The settings as they are used: defaults and recommendations filled in."
    )
    error: JobError | None = Field(description="Why it failed; null otherwise.")
    artifacts: list[ArtifactView] = Field(
        description="Its files: what was sent, and the results so far."
    )
    metrics: dict[str, Any] = Field(
        description="Measurements of the finished job, such as seconds and misfit."
    )
    request_id: str = Field(description="X-Request-ID of the submission.")
    traceparent: str = Field(description="W3C trace context of the submission.")
    cancel_after_seconds: int | None = Field(
        description="The deadline, in seconds after created_at."
    )
    urls: dict[str, str] = Field(
        description="Links to the job's events, files and actions, by name."
    )


class JobPage(BaseModel):
    """Jobs, newest first."""

    jobs: list[JobView] = Field(description="The jobs of this page.")
    next: str | None = Field(description="Link to the next page.")
