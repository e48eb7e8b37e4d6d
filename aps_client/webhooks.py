"""Receiving webhooks: verifies the signature (Standard Webhooks 1.0) and parses the message."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ValidationError, field_validator
from standardwebhooks.webhooks import (
    EmptyWebhookSecretError,
    Webhook,
    WebhookVerificationError,
)

from aps_client.errors import WebhookRejected
from aps_client.models import Job


class WebhookEvent(BaseModel):
    """A verified message. The same one may come more than once, under one ``id``: act on the
    first.
    """

    id: str
    type: str
    timestamp: datetime
    data: Job

    @field_validator("data", mode="before")
    @classmethod
    def _thin(cls, data: Any) -> Any:
        """Messages leave out what is long or stale; the job's own link has it."""
        return (
            {"spec": {}, "metrics": {}, "queue_position": None, **data}
            if isinstance(data, dict)
            else data
        )


def verify_webhook(
    body: bytes, headers: Mapping[str, str], secrets: str | Iterable[str]
) -> WebhookEvent:
    """The message in ``body``, if one of ``secrets`` (``whsec_...``) signed these very bytes within
    the last five minutes.

    ``headers`` may be spelt in any case. While secrets are being changed, pass both.

    Raises:
        WebhookRejected: a header is missing or malformed, no signature fits, the message is too old
            or from the future, or it does not describe a job.
    """
    sent = {name.lower(): value for name, value in headers.items()}
    reason = "No secret was given."
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        try:
            Webhook(secret).verify(body, sent, json_parse=False)
            break
        except (WebhookVerificationError, EmptyWebhookSecretError) as error:
            reason = f"{error}."
        except ValueError as error:
            reason = f"The secret, the signature or the body is malformed: {error}."
    else:
        raise WebhookRejected(reason)
    try:
        return WebhookEvent.model_validate({**_object(body), "id": sent["webhook-id"]})
    except ValidationError as error:
        raise WebhookRejected(
            f"The message is signed but does not describe a job: {error.errors()[0]['msg']}"
        ) from error


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
