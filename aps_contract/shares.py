"""Links to the result of a job."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from aps_contract.jobs import ArtifactView, JobState


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
