"""The outbox of webhooks: what must be told to whom, written by the transition that made it true.

Keys: ``webhook:ID`` a delivery (hash), ``webhooks:due`` deliveries by the time of their next
attempt (sorted set), ``job:ID:webhooks`` a job's deliveries (list), ``webhooks:gone:HASH``
receivers that asked not to be called again. A sender takes deliveries under a lease: one that dies
leaves them to the next, so a message may come twice, with the same id.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, cast

from pydantic import BaseModel, ConfigDict
from redis import Redis

from service.jobs import transitions

GONE_SECONDS = 86_400
"""How long a receiver that answered 410 is left alone."""


class DeliveryState(StrEnum):
    """``pending`` until a receiver has accepted the message, or will never."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    GONE = "gone"
    """The receiver answered 410, to this message or one before it."""


class Attempt(BaseModel):
    """One try to deliver."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    seconds: float
    status: int | None = None
    """What the receiver answered, if it did."""
    error: str = ""


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
    """The exact bytes that are signed and sent; written before the first attempt."""

    @classmethod
    def from_hash(cls, delivery_id: str, fields: Mapping[bytes, bytes]) -> Delivery:
        """Reads the delivery as it lies in Redis."""
        text: dict[str, Any] = {name.decode(): value.decode() for name, value in fields.items()}
        return cls.model_validate(
            {**text, "id": delivery_id, "attempts": json.loads(text.get("attempts", "[]"))}
        )


class Outbox:
    """The API's view of it; :mod:`service.webhooks.sender` empties it."""

    def __init__(self, redis: Redis, prefix: str = "aps:") -> None:
        self.redis, self.keys = redis, OutboxKeys(prefix)
        self._postpone = redis.register_script(transitions.SCRIPTS["postpone"])

    def deliveries(self, job_id: str) -> list[Delivery]:
        """What was and will be told about a job, oldest first."""
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
        """A delivery, or None."""
        fields = cast("dict[bytes, bytes]", self.redis.hgetall(self.keys.delivery(delivery_id)))
        return Delivery.from_hash(delivery_id, fields) if fields else None

    def redeliver(self, delivery: Delivery) -> None:
        """Sends a message again, now, under its old id; also to a receiver that had asked not to be
        called.
        """
        self.redis.delete(self.keys.gone(delivery.tenant, delivery.url))
        changes = ("state", DeliveryState.PENDING, "retries", 0)
        self._postpone(keys=[self.keys.prefix], args=[delivery.id, 0, *changes])

    def pending(self) -> int:
        """Deliveries that have not come to an end."""
        return self.redis.zcard(self.keys.due)

    def kept_secret(self) -> str:
        """A master secret for services that were not given one; made once, and kept with the
        jobs.
        """
        self.redis.set(self.keys.secret, new_master(), nx=True)
        return cast(bytes, self.redis.get(self.keys.secret)).decode()


def new_master() -> str:
    """A fresh master secret."""
    return secrets.token_hex(32)


class OutboxKeys:
    """Names of the outbox's keys."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.due, self.secret = (
            prefix,
            f"{prefix}webhooks:due",
            f"{prefix}webhooks:secret",
        )

    def delivery(self, delivery_id: str) -> str:
        """One message."""
        return f"{self.prefix}webhook:{delivery_id}"

    def of_job(self, job_id: str) -> str:
        """A job's messages."""
        return f"{self.prefix}job:{job_id}:webhooks"

    def gone(self, tenant: str, url: str) -> str:
        """Whether this receiver wants no more of this client's messages."""
        return (
            f"{self.prefix}webhooks:gone:{hashlib.sha256(f'{tenant} {url}'.encode()).hexdigest()}"
        )
