"""The public view of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from service.jobs import Job, JobError, Progress

if TYPE_CHECKING:  # their module needs redis, which the client does not load
    from service.jobs import Batch, Entry

MAX_PICTURES = 100
"""Maximum pictures of a batch."""


class PictureState(StrEnum):
    """State of one picture: that of its job, or why it has none."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    REFUSED = "refused"
    """It was not accepted."""
    DELETED = "deleted"
    """Its job has been deleted or has expired."""


class BatchPicture(BaseModel):
    """One picture of a batch, in the order of the request."""

    number: int = Field(description="Place in the request, from 1.")
    state: PictureState = Field(description="State of its job, or why it has none.")
    job: str | None = Field(description="Id of its job; null if it was refused.")
    progress: Progress | None = Field(
        description="State after the last finished reverse step; null before the first."
    )
    error: JobError | None = Field(description="Why it was refused, or why its job failed.")
    urls: dict[str, str] = Field(
        description="'job' and, once it has succeeded, 'result': the picture."
    )


class BatchView(BaseModel):
    """A batch. Use its links instead of constructing URLs."""

    id: str = Field(description="Unique id.")
    created_at: datetime = Field(description="When it was submitted.")
    finished: bool = Field(description="Whether no job of the batch is queued or running.")
    progress: float = Field(description="Share of the work that is done, 0 to 1.")
    counts: dict[PictureState, int] = Field(description="Number of pictures in each state.")
    pictures: list[BatchPicture] = Field(description="Every picture, in the order of the request.")
    urls: dict[str, str] = Field(
        description="Links to the batch's actions and its archive of results, by name."
    )


def view_batch(batch: Batch, jobs: Sequence[Job | None]) -> BatchView:
    """The public view of ``batch``; ``jobs`` are the records of ``batch.jobs``, None if gone."""
    found = {job.id: job for job in jobs if job is not None}
    pictures = [
        _picture(number, entry, found.get(entry.job or ""))
        for number, entry in enumerate(batch.entries, 1)
    ]
    base = f"/v1/batches/{batch.id}"
    return BatchView(
        id=batch.id,
        created_at=batch.created_at,
        finished=all(job.state.terminal for job in found.values()),
        progress=sum(_done(each) for each in pictures) / len(pictures),
        counts=dict(Counter(each.state for each in pictures)),
        pictures=pictures,
        urls={"self": base, "cancel": f"{base}/cancel", "results": f"{base}/results.zip"},
    )


def _picture(number: int, entry: Entry, job: Job | None) -> BatchPicture:
    if job is None:
        state = PictureState.REFUSED if entry.job is None else PictureState.DELETED
        return BatchPicture(
            number=number, state=state, job=entry.job, progress=None, error=entry.error, urls={}
        )
    base = f"/v1/jobs/{job.id}"
    result = job.artifact("result.png")
    return BatchPicture(
        number=number,
        state=PictureState(job.state),
        job=job.id,
        progress=job.progress,
        error=job.error,
        urls={"job": base, **({"result": f"{base}/artifacts/{result.name}"} if result else {})},
    )


def _done(picture: BatchPicture) -> float:
    """Share of a picture's work that is done: 1 for one that needs no more."""
    if picture.state is PictureState.QUEUED:
        return 0.0
    if picture.state is not PictureState.RUNNING:
        return 1.0
    return picture.progress.step / picture.progress.total if picture.progress else 0.0
