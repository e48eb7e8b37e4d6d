"""Verification (Standard Webhooks 1.0) and parsing of webhooks for receivers."""

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
    """A verified webhook. The service may deliver it several times; deduplicate by ``id``."""

    id: str
    type: str
    timestamp: datetime
    data: Job

    @field_validator("data", mode="before")
    @classmethod
    def _thin(cls, data: Any) -> Any:
        """Fills in fields that webhooks omit because they are long or volatile."""
        return (
            {"spec": {}, "metrics": {}, "queue_position": None, **data}
            if isinstance(data, dict)
            else data
        )


def verify_webhook(
    body: bytes, headers: Mapping[str, str], secrets: str | Iterable[str]
) -> WebhookEvent:
    """Verifies the signature and age of a webhook and parses it.

    Args:
        body: the request body exactly as received.
        headers: the request headers; names are case-insensitive.
        secrets: signing secret (``whsec_...``), or several while secrets are being rotated.

    Returns:
        The message, if one of ``secrets`` signed it and its timestamp is within five minutes of
        this machine's clock.

    Raises:
        WebhookRejected: a header is missing or malformed, no signature matches, the timestamp is
            outside the tolerance, or the message does not describe a job.
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
        message = json.loads(body)
    except ValueError as error:
        raise WebhookRejected(f"The message is signed but is not valid JSON: {error}.") from error
    if not isinstance(message, dict):
        raise WebhookRejected("The message is signed but is not a JSON object.")
    try:
        return WebhookEvent.model_validate({**message, "id": sent["webhook-id"]})
    except ValidationError as error:
        wrong = error.errors()[0]
        field = ".".join(map(str, wrong["loc"]))
        raise WebhookRejected(
            f"The message is signed but does not describe a job: {field}: {wrong['msg']}"
        ) from error
