"""Events of a job: its history, and the webhooks that report it."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from aps_contract.jobs import JobView


class Event(BaseModel):
    """An entry of a job's history: ``status``, ``progress``, ``inner`` or ``done``."""

    model_config = ConfigDict(frozen=True)

    id: str
    type: str
    data: dict[str, Any]

    @property
    def job(self) -> JobView | None:
        """The complete job; only the last event that a client receives contains it."""
        return JobView.model_validate(self.data["job"]) if "job" in self.data else None


MAX_URL = 2000
"""Maximum length of a webhook URL, in characters."""

EventKind = Literal["job.started", "job.progress", "job.completed", "batch.completed"]
WEBHOOK_EVENTS: tuple[EventKind, ...] = get_args(EventKind)


class Webhook(BaseModel):
    """A subscription to a job's events: the receiver's URL and the kinds of event to send."""

    model_config = ConfigDict(frozen=True)

    url: str = Field(
        min_length=1, max_length=MAX_URL, description="Receiver of the messages: an https URL."
    )
    events: list[EventKind] = Field(
        ["job.completed"],
        min_length=1,
        max_length=len(WEBHOOK_EVENTS),
        json_schema_extra={"uniqueItems": True},
        description="Kinds of event to send.",
    )

    @field_validator("events")
    @classmethod
    def _unique(cls, events: list[EventKind]) -> list[EventKind]:
        if len(set(events)) < len(events):
            raise ValueError("Each event may be listed only once.")
        return events
