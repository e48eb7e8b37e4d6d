"""What a client may say about how its job travels, beside what the job computes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from service.jobs import Priority, Webhook


class Options(BaseModel):
    """Sent beside the spec: in JSON as further fields, in a form as further parts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    priority: Priority = Field(
        Priority.NORMAL,
        description=("Goes before, or behind, own jobs submitted up to an hour earlier, or later."),
    )
    webhook: Webhook | None = Field(None, description="Whom to tell how the job goes.")
