"""Response models: the public view of a job, with links, and problem documents."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.jobs import Artifact, Job, JobError, JobState, Phase, Priority, Progress


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


class ShareRequest(BaseModel):
    """How long a link to a result shall last."""

    model_config = ConfigDict(extra="forbid")

    seconds: int | None = Field(
        None,
        ge=60,
        le=31_536_000,
        description=(
            "Lifetime of the link; null: as long as possible. It ends after APS_MAX_SHARE_SECONDS"
            " or when the result's files expire, if that is earlier."
        ),
    )


class LinkView(BaseModel):
    """A new link to a result. Its address is shown only once."""

    url: str = Field(
        description="Address of a page with the result; a path if APS_PUBLIC_URL is not set."
    )
    expires_at: datetime = Field(description="When the link ends.")


class SharedView(BaseModel):
    """A shared result: what whoever has a link to it can read."""

    id: str = Field(description="Id of the job.")
    task: str = Field(description="Task, such as 'restore'.")
    prior: str = Field(description="Prior that was sampled.")
    state: Literal[JobState.SUCCEEDED] = Field(
        description="Only results of succeeded jobs are shared."
    )
    created_at: datetime | None = Field(description="When the job was submitted.")
    finished_at: datetime | None = Field(description="When it ended.")
    expires_at: datetime | None = Field(description="When the link ends.")
    image_size: tuple[int, int] | None = Field(description="Width and height of the upload.")
    output_size: tuple[int, int] | None = Field(
        description="Width and height of the result; null for text."
    )
    spec: dict[str, Any] = Field(description="The settings that were used.")
    artifacts: list[ArtifactView] = Field(description="The shared files.")
    metrics: dict[str, Any] = Field(
        description="Measurements of the job, such as seconds and misfit."
    )
    urls: dict[str, str] = Field(description="Links to the files, by name.")


MAX_SIDE = 100_000
"""Maximum width and height in pixels of a picture to be estimated."""

Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]


class EstimateRequest(BaseModel):
    """A job's spec, and the size of the picture that would be sent with it."""

    model_config = ConfigDict(extra="forbid")

    spec: dict[str, Any] = Field({}, description="The task's spec, as at submission.")
    image_size: tuple[Side, Side] | None = Field(
        None, description="Width and height of the picture 'image' in pixels; null without one."
    )


class EstimateView(BaseModel):
    """What a job would give and take."""

    prior: str = Field(
        description=(
            "Prior that computes it; if it depends on what the picture shows, that for photographs."
        )
    )
    output_size: tuple[int, int] | None = Field(
        description="Width and height of the result; null for text."
    )
    reduced_size: tuple[int, int] | None = Field(
        description=(
            "Width and height to which the upload would be reduced; null if it is used as it is."
        )
    )
    tokens: int = Field(description="Tokens to compute, of all samples.")
    seconds: float = Field(description="Predicted computing time, without waiting in the queue.")
    refusal: JobError | None = Field(
        description="Why a submission would be refused for its size or duration; null if it is not."
    )
    seconds_by_preset: dict[str, float] = Field(
        description="Predicted computing time with each preset; empty for tasks without presets."
    )


class StoredPicture(BaseModel):
    """A stored picture that jobs may refer to as ``sha256:`` and its hash."""

    sha256: str = Field(
        description=(
            "Hash of the stored PNG, not of the uploaded file: pictures are always re-encoded."
        )
    )
    media_type: str = Field(description="MIME type of the stored file.")
    bytes: int = Field(description="Size of the stored file in bytes.")
    width: int = Field(description="Width in pixels.")
    height: int = Field(description="Height in pixels.")
    has_alpha: bool = Field(description="Whether it has transparency.")
    expires_at: datetime = Field(description="When it is deleted, unless it is stored again.")


class JobPage(BaseModel):
    """Jobs, newest first."""

    jobs: list[JobView] = Field(description="The jobs of this page.")
    next: str | None = Field(description="Link to the next page.")


class FieldError(BaseModel):
    """One invalid field."""

    pointer: str = Field(description="JSON pointer into the spec.")
    detail: str = Field(description="What is wrong with the field.")


class Problem(BaseModel):
    """RFC 9457 problem details."""

    type: str = Field(
        description="Stable URI of the kind of problem: urn:aps:problem: and the code."
    )
    title: str = Field(description="Name of the kind of problem.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="What is wrong with this request.")
    code: str = Field(description="Stable and machine-readable.")
    retryable: bool = Field(False, description="Whether the same request may succeed later.")
    errors: list[FieldError] = Field(
        [], description="Every invalid field; empty or null if the problem is not about fields."
    )
    request_id: str = Field(
        "", description="X-Request-ID of the request; name it when you ask for help."
    )


def view(job: Job, queue_position: int | None) -> JobView:
    """The public view of ``job``."""
    base = f"/v1/jobs/{job.id}"
    return JobView(
        **job.model_dump(include=set(JobView.model_fields) - {"artifacts"}),
        queue_position=queue_position,
        artifacts=_artifacts(base, job),
        urls={
            "self": base,
            "events": f"{base}/events",
            "cancel": f"{base}/cancel",
            "share": f"{base}/share",
            "previews": f"{base}/previews/{{step}}",
        },
    )


def shared_base(job_id: str) -> str:
    """Address under which a shared result and its files are found."""
    return f"/v1/shared/{job_id}"


def shared_view(job: Job, until: datetime) -> SharedView:
    """The view of a succeeded ``job`` for whoever has a link that lasts ``until`` then."""
    base, ours = shared_base(job.id), {"artifacts", "expires_at", "urls"}
    return SharedView(
        **job.model_dump(include=set(SharedView.model_fields) - ours),
        artifacts=_artifacts(base, job),
        expires_at=until,
        urls={"self": base, "steps": f"{base}/steps"},
    )


def _artifacts(base: str, job: Job) -> list[ArtifactView]:
    return [
        *(_artifact(base, file, "input") for file in job.inputs.values()),
        *(_artifact(base, file, "result") for file in job.artifacts),
    ]


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
    """Value of ``Retry-After``: about the duration of a reverse step, in seconds."""
    return str(max(1, round(job.progress.seconds if job.progress else 1)))
