"""Receiving webhooks: is a message the service's (Standard Webhooks 1.0), and what does it say."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ValidationError, field_validator

from aps_client.errors import WebhookRejected
from aps_client.models import Job

TOLERANCE_SECONDS = 300


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
    body: bytes,
    headers: Mapping[str, str],
    secrets: str | Iterable[str],
    *,
    tolerance: float = TOLERANCE_SECONDS,
) -> WebhookEvent:
    """The message in ``body``, if one of ``secrets`` (``whsec_...``) signed these very bytes within
    ``tolerance`` seconds.

    ``headers`` may be spelt in any case. While secrets are being changed, name both.

    Raises:
        WebhookRejected: a header is missing, no signature fits, or it is too old or from the
            future.
    """
    sent = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, timestamp, signatures = (
            sent[f"webhook-{name}"] for name in ("id", "timestamp", "signature")
        )
        age = time.time() - int(timestamp)
    except KeyError as error:
        raise WebhookRejected(f"The header {error} is missing.") from error
    except ValueError as error:
        raise WebhookRejected("The header 'webhook-timestamp' is no number.") from error
    if abs(age) > tolerance:
        raise WebhookRejected(
            f"The message is {age:.0f} s old; the limit is {tolerance:g} s. Is the clock right?"
        )
    content = f"{message_id}.{timestamp}.".encode() + body
    expected = [
        _signature(secret, content)
        for secret in ([secrets] if isinstance(secrets, str) else secrets)
    ]
    if not any(
        hmac.compare_digest(one.encode(), given.encode())
        for one in expected
        for given in signatures.split()
    ):
        raise WebhookRejected(
            "No signature fits: the body was changed on the way, or the secret is another."
        )
    try:
        return WebhookEvent.model_validate({**_object(body), "id": message_id})
    except ValidationError as error:
        raise WebhookRejected(
            f"The message is signed, but says nothing of a job: {error.errors()[0]['msg']}"
        ) from error


def _signature(secret: str, content: bytes) -> str:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        raise WebhookRejected(
            "The secret is not of the form 'whsec_' and base64; the service tells it at"
            " /v1/webhooks/secrets."
        ) from error
    return f"v1,{base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()}"


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
