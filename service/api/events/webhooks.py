"""Routes of webhooks: list deliveries, redeliver a message, get the signing secrets."""

from __future__ import annotations

import re
from datetime import datetime

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from service.access.principals import Reader, Writer
from service.api.app_state import JOB_ID, services_of
from service.api.openapi.fragments import problems
from service.api.problems.errors import NotFound
from service.jobs import Attempt, Delivery, DeliveryState
from service.webhooks.sender import secret_for

_DELIVERY = re.compile(rf"{JOB_ID.pattern}-[0-9]{{1,9}}")

router = APIRouter(prefix="/v1", tags=["webhooks"])


class DeliveryView(BaseModel):
    """A webhook message and its delivery attempts."""

    id: str = Field(description="Unique id, the same in every attempt (header webhook-id).")
    type: str = Field(description="Kind of event, such as 'job.completed'.")
    url: str = Field(description="Receiver.")
    state: DeliveryState = Field(
        description="Whether it was delivered, will be tried again, or was given up."
    )
    created_at: datetime = Field(description="When the event happened.")
    attempts: list[Attempt] = Field(description="The attempts so far, oldest first.")
    next_attempt_at: datetime | None = Field(
        description="When it is tried again; null if it is not."
    )


class Secrets(BaseModel):
    """Signing secrets for verifying messages. During rotation there are several, and any of them
    verifies a message.
    """

    secrets: list[str] = Field(description="The secrets, newest first.")


@router.get("/jobs/{job_id}/webhooks", responses=problems(401, 403, 404, 503))
def list_deliveries(request: Request, who: Reader, job_id: str) -> list[DeliveryView]:
    """All webhook deliveries of a job, sent and pending, with every attempt."""
    services = services_of(request)
    services.job(job_id, who.name)
    return [_view(delivery) for delivery in services.outbox.deliveries(job_id)]


@router.post(
    "/webhooks/deliveries/{delivery_id}/redeliver",
    status_code=202,
    responses=problems(401, 403, 404, 503),
)
def redeliver(request: Request, who: Writer, delivery_id: str) -> DeliveryView:
    """Sends a message again with the same id, even if the receiver had answered 410."""
    services = services_of(request)
    known = _DELIVERY.fullmatch(delivery_id) is not None
    delivery = services.outbox.get(delivery_id) if known else None
    if delivery is None or delivery.tenant != who.name:
        raise NotFound(f"There is no delivery '{delivery_id[:80]}'.")
    services.job(delivery.job, who.name)
    services.outbox.redeliver(delivery)
    return _view(services.outbox.get(delivery_id) or delivery)


@router.get("/webhooks/secrets", responses=problems(401, 403, 503))
def get_secrets(request: Request, who: Writer) -> Secrets:
    """The secrets of this client's webhooks, newest first."""
    services = services_of(request)
    masters = services.settings.webhook_secrets or [services.outbox.kept_secret()]
    return Secrets(secrets=[secret_for(master, who.name) for master in masters])


def _view(delivery: Delivery) -> DeliveryView:
    return DeliveryView.model_validate(delivery.model_dump())
