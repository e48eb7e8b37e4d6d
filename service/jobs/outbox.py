"""Transactional outbox of webhooks: each transition writes its own messages atomically.

Keys: ``webhook:ID`` a delivery (hash), ``webhooks:due`` deliveries by the time of their next
attempt (sorted set), ``job:ID:webhooks`` a job's deliveries (list), ``webhooks:gone:HASH``
receivers that answered 410. Senders take deliveries under a lease. When a sender is lost, another
one repeats its deliveries, so a message may arrive twice, with the same id.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field
from redis import Redis

from service.jobs import transitions

GONE_SECONDS = 86_400
"""How long no messages are sent to a receiver that answered 410, in seconds."""


class DeliveryState(StrEnum):
    """``pending`` until the receiver accepts the message or the sender gives up."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    GONE = "gone"
    """The receiver answered 410 to this or an earlier message."""


class Attempt(BaseModel):
    """One delivery attempt."""

    model_config = ConfigDict(frozen=True)

    at: datetime = Field(description="When it began.")
    seconds: float = Field(description="Duration.")
    status: int | None = Field(
        None, description="HTTP status of the receiver's response; null if there was none."
    )
    error: str = Field("", description="What went wrong; empty if nothing did.")


class Delivery(BaseModel):
    """One message to one receiver, with the log of its attempts."""

    model_config = ConfigDict(frozen=True)

    id: str
    job: str
    tenant: str = ""
    url: str
    type: str
    created_at: datetime
    state: DeliveryState = DeliveryState.PENDING
    attempts: list[Attempt] = []
    next_attempt_at: datetime | None = None
    body: str = ""
    """The exact text that is signed and sent; fixed before the first attempt."""

    @classmethod
    def from_hash(cls, delivery_id: str, fields: Mapping[bytes, bytes]) -> Delivery:
        """Parses the delivery's Redis hash."""
        text: dict[str, Any] = {name.decode(): value.decode() for name, value in fields.items()}
        return cls.model_validate(
            {**text, "id": delivery_id, "attempts": json.loads(text.get("attempts", "[]"))}
        )


class Outbox:
    """The API's access to the outbox; :mod:`service.webhooks.sender` sends its messages."""

    def __init__(self, redis: Redis, prefix: str = "aps:") -> None:
        self.redis = redis
        self.keys = OutboxKeys(prefix)
        self._postpone = redis.register_script(transitions.SCRIPTS["postpone"])

    def deliveries(self, job_id: str) -> list[Delivery]:
        """All deliveries of a job, sent and pending, oldest first."""
        ids = [
            raw.decode()
            for raw in cast("list[bytes]", self.redis.lrange(self.keys.of_job(job_id), 0, -1))
        ]
        with self.redis.pipeline(transaction=False) as pipe:
            for delivery_id in ids:
                pipe.hgetall(self.keys.delivery(delivery_id))
            found = pipe.execute()
        return [
            Delivery.from_hash(delivery_id, fields)
            for delivery_id, fields in zip(ids, found, strict=True)
            if fields
        ]

    def get(self, delivery_id: str) -> Delivery | None:
        """A delivery by its id, or None."""
        fields = cast("dict[bytes, bytes]", self.redis.hgetall(self.keys.delivery(delivery_id)))
        return Delivery.from_hash(delivery_id, fields) if fields else None

    def redeliver(self, delivery: Delivery) -> None:
        """Schedules a message to be sent again immediately, with the same id, even if the receiver
        had answered 410.
        """
        self.redis.delete(self.keys.gone(delivery.tenant, delivery.url))
        changes = ("state", DeliveryState.PENDING, "retries", 0)
        self._postpone(keys=[self.keys.prefix], args=[delivery.id, 0, *changes])

    def pending(self) -> int:
        """Number of deliveries still to be made."""
        return self.redis.zcard(self.keys.due)

    def kept_secret(self) -> str:
        """The generated master secret, for services without ``APS_WEBHOOK_SECRETS``; created once
        and stored in Redis.
        """
        self.redis.set(self.keys.secret, new_master(), nx=True)
        return cast(bytes, self.redis.get(self.keys.secret)).decode()


def new_master() -> str:
    """A fresh master secret."""
    return secrets.token_hex(32)


class OutboxKeys:
    """Names of the outbox's keys."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.due = f"{prefix}webhooks:due"
        self.secret = f"{prefix}webhooks:secret"

    def delivery(self, delivery_id: str) -> str:
        """Hash of one delivery."""
        return f"{self.prefix}webhook:{delivery_id}"

    def of_job(self, job_id: str) -> str:
        """List of a job's deliveries."""
        return f"{self.prefix}job:{job_id}:webhooks"

    def gone(self, tenant: str, url: str) -> str:
        """Marker that this receiver answered 410 to this tenant's messages."""
        return (
            f"{self.prefix}webhooks:gone:{hashlib.sha256(f'{tenant} {url}'.encode()).hexdigest()}"
        )
