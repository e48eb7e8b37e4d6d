"""Job options: how a job is scheduled and reported, as opposed to what it computes."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from aps_contract import Priority, Webhook

WEBHOOK = '{"url": "https://example.org/hook"}'
"""Shortest form of a webhook, for messages."""


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

    @field_validator("webhook", mode="before")
    @classmethod
    def _is_object(cls, webhook: Any) -> Any:
        if webhook is not None and not isinstance(webhook, dict | Webhook):
            raise PydanticCustomError("webhook_form", f"Input should be an object, like {WEBHOOK}")
        return webhook
