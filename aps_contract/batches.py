"""A batch: many restorations in one request."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, Field

from aps_contract.jobs import JobError, Progress

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
