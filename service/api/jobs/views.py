"""The public view of a job, with links."""

from __future__ import annotations

from typing import Literal

from aps_contract import ArtifactView, JobView
from service.jobs import Artifact, Job


def view(job: Job, queue_position: int | None) -> JobView:
    """The public view of ``job``."""
    base = f"/v1/jobs/{job.id}"
    return JobView(
        **job.model_dump(include=set(JobView.model_fields) - {"artifacts"}),
        queue_position=queue_position,
        artifacts=artifact_views(base, job),
        urls={
            "self": base,
            "events": f"{base}/events",
            "cancel": f"{base}/cancel",
            "share": f"{base}/share",
            "previews": f"{base}/previews/{{step}}",
        },
    )


def artifact_views(base: str, job: Job) -> list[ArtifactView]:
    """The job's files, those that were sent first; their links start with ``base``."""
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
