"""Job options: how a job is scheduled and reported, as opposed to what it computes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from service.jobs import Priority, Webhook


class Options(BaseModel):
    """Options sent next to the spec: as additional JSON fields or form parts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    priority: Priority = Field(
        Priority.NORMAL,
        description=(
            "'high' moves the job ahead of your jobs submitted up to an hour earlier, 'low' behind"
            " those submitted up to an hour later."
        ),
    )
    webhook: Webhook | None = Field(None, description="Receiver of the job's events.")
