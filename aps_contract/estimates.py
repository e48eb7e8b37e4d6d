"""What a job would take: request and response of ``POST /v1/{task}/estimate``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from aps_contract.jobs import JobError

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
