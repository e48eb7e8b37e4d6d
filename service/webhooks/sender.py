"""Delivers the outbox's messages as signed Standard Webhooks, decoupled from the jobs themselves.

A receiver that is down, slow or hostile occupies a bounded number of connections and does not
affect jobs.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
from redis.asyncio import Redis
from redis.exceptions import RedisError
from standardwebhooks import Webhook

from service.api.jobs.views import view
from service.egress.public_only import NOT_PUBLIC, open_client
from service.jobs import Attempt, Delivery, DeliveryState, Job, OutboxKeys, transitions
from service.jobs.outbox import GONE_SECONDS, new_master
from service.settings import Settings
from service.telemetry import metrics

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 64
MAX_PER_HOST = 8
OUTAGE_SECONDS = 1.0
POLL_SECONDS = 0.1
MAX_ANSWER_BYTES = 4096
"""Maximum bytes read of a receiver's response."""
MAX_RETRY_AFTER_SECONDS = 86_400


_FAILURES: dict[type[Exception], str] = {
    httpx.ConnectError: "no connection",
    httpx.ProtocolError: "the answer is not HTTP",
    httpx.NetworkError: "the connection broke",
    httpx.InvalidURL: "the address is malformed",
}


def secret_for(master: str, tenant: str) -> str:
    """Derives a tenant's signing secret from the master secret, so that secrets need not be stored
    and differ between tenants.
    """
    key = hmac.digest(master.encode(), f"webhook {tenant}".encode(), hashlib.sha256)
    return f"whsec_{base64.b64encode(key).decode()}"


def signature(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """Value of ``webhook-signature``: one ``v1`` signature per secret, to allow rotation."""
    when, text = datetime.fromtimestamp(timestamp, UTC), body.decode()
    return " ".join(Webhook(secret).sign(message_id, when, text) for secret in secrets)


def payload(delivery: Delivery, job: Job, public_url: str) -> str:
    """JSON body of a message: the job without its spec, with absolute links to its files."""
    shown = view(job, None).model_dump(mode="json", exclude={"spec", "metrics", "queue_position"})
    shown["urls"] = {name: public_url + url for name, url in shown["urls"].items()}
    shown["artifacts"] = [
        {**artifact, "url": public_url + artifact["url"]} for artifact in shown["artifacts"]
    ]
    return json.dumps(
        {"type": delivery.type, "timestamp": delivery.created_at.isoformat(), "data": shown},
        separators=(",", ":"),
    )


class Sender:
    """Delivers due messages. Any number of senders may run; each delivery is leased to one."""

    def __init__(self, settings: Settings, redis: Redis, http: httpx.AsyncClient) -> None:
        self.settings = settings
        self.redis = redis
        self.http = http
        self.keys = OutboxKeys(settings.key_prefix)
        self._take = redis.register_script(transitions.SCRIPTS["take_deliveries"])
        self._later = redis.register_script(transitions.SCRIPTS["postpone"])
        self._amendment = redis.register_script(transitions.SCRIPTS["amend"])
        self._busy: set[asyncio.Task[None]] = set()
        self._hosts: Counter[str] = Counter()

    async def run(self) -> None:
        """Sends until canceled; interrupted deliveries are repeated when their lease expires."""
        running = asyncio.current_task()
        assert running is not None
        try:
            while not running.cancelling():  # a client's timeout may have caught the cancellation
                try:
                    found = await self._start_due()
                except RedisError as error:
                    log.warning("The outbox cannot be read: %s", error)
                    await asyncio.sleep(OUTAGE_SECONDS)
                    continue
                if not found:
                    await asyncio.sleep(POLL_SECONDS)
        finally:
            for task in self._busy:
                task.cancel()
            await asyncio.gather(*self._busy, return_exceptions=True)

    async def _start_due(self) -> int:
        free = MAX_IN_FLIGHT - len(self._busy)
        if not free:
            return 0
        lease = 2 * self.settings.webhook_timeout_seconds
        taken: list[bytes] = await cast(
            Awaitable[Any], self._take(keys=[self.keys.prefix], args=[free, lease])
        )
        for raw in taken:
            task = asyncio.create_task(self._handle(raw.decode()))
            self._busy.add(task)
            task.add_done_callback(self._busy.discard)
        return len(taken)

    async def _handle(self, delivery_id: str) -> None:
        try:
            await self._deliver(delivery_id)
        except RedisError as error:
            # when its lease expires, it is due again
            log.warning("Delivery %s is postponed: %s", delivery_id, error)
        except Exception:  # a record that cannot be read; the task would end without a word
            log.exception("Delivery %s is postponed", delivery_id)

    async def _deliver(self, delivery_id: str) -> None:
        fields: dict[bytes, bytes] = await cast(
            Awaitable[Any], self.redis.hgetall(self.keys.delivery(delivery_id))
        )
        delivery = Delivery.from_hash(delivery_id, fields) if fields else None
        delivery = await self._with_body(delivery) if delivery else None
        if delivery is None:  # the job has been deleted
            await self.redis.zrem(self.keys.due, delivery_id)
            return
        host = urlsplit(delivery.url).netloc
        if self._hosts[host] >= MAX_PER_HOST:  # a slow receiver must not block the others
            await self._postpone(delivery_id, 1)
            return
        if await self.redis.exists(self.keys.gone(delivery.tenant, delivery.url)):
            await self._end(delivery, DeliveryState.GONE, [])
            return
        self._hosts[host] += 1
        try:
            attempt, retry_after = await self._attempt(delivery)
        finally:
            self._hosts[host] -= 1
        await self._record(delivery, attempt, retry_after, int(fields.get(b"retries", b"0")))

    async def _with_body(self, delivery: Delivery) -> Delivery | None:
        if delivery.body:
            return delivery
        record: dict[bytes, bytes] = await cast(
            Awaitable[Any], self.redis.hgetall(f"{self.settings.key_prefix}job:{delivery.job}")
        )
        if not record:
            return None
        body = payload(delivery, Job.from_hash(record), self.settings.public_url)
        kept = await self._amend(delivery.id, "more", body=body)
        return delivery.model_copy(update={"body": body}) if kept else None

    async def _attempt(self, delivery: Delivery) -> tuple[Attempt, float]:
        """Makes one attempt; returns it and the receiver's ``Retry-After`` in seconds, or 0."""
        started, body, timestamp = time.monotonic(), delivery.body.encode(), int(time.time())
        keys = [secret_for(master, delivery.tenant) for master in await self._masters()]
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "aps-webhooks",
            "webhook-id": delivery.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(keys, delivery.id, timestamp, body),
        }
        status, error, pause = None, "", 0.0
        try:
            # an overall limit: a receiver that responds byte by byte would reset other timeouts
            async with (
                asyncio.timeout(self.settings.webhook_timeout_seconds),
                self.http.stream(
                    "POST", delivery.url, content=body, headers=headers, follow_redirects=False
                ) as answer,
            ):
                status, after = answer.status_code, answer.headers.get("retry-after", "")
                pause = min(float(after), MAX_RETRY_AFTER_SECONDS) if after.isdecimal() else 0.0
        except TimeoutError:
            error = f"no answer within {self.settings.webhook_timeout_seconds:g} s"
        except (httpx.HTTPError, httpx.InvalidURL) as failure:
            error = _reason(failure)
        return Attempt(
            at=datetime.now(UTC),
            seconds=round(time.monotonic() - started, 4),
            status=status,
            error=error,
        ), pause

    async def _masters(self) -> Sequence[str]:
        if self.settings.webhook_secrets:
            return self.settings.webhook_secrets
        # read each time: a store that lost its data has a new secret, which receivers can get from
        # GET /v1/webhooks/secrets
        await self.redis.set(self.keys.secret, new_master(), nx=True)
        return [cast(bytes, await self.redis.get(self.keys.secret)).decode()]

    async def _record(
        self, delivery: Delivery, attempt: Attempt, retry_after: float, retries: int
    ) -> None:
        attempts = [*delivery.attempts, attempt]
        if len(attempts) == 1:
            metrics.WEBHOOK_DELAY.observe(
                max(0.0, attempt.at.timestamp() - delivery.created_at.timestamp())
            )
        if attempt.status is not None and 200 <= attempt.status < 300:
            await self._end(delivery, DeliveryState.DELIVERED, attempts)
        elif attempt.status == 410:
            await self.redis.set(
                self.keys.gone(delivery.tenant, delivery.url), "1", ex=GONE_SECONDS
            )
            await self._end(delivery, DeliveryState.GONE, attempts)
        elif delivery.type == "job.progress" or retries >= len(self.settings.webhook_retry_seconds):
            await self._end(delivery, DeliveryState.FAILED, attempts)
        else:
            metrics.WEBHOOKS.labels("retried").inc()
            pause = self.settings.webhook_retry_seconds[retries] * random.uniform(1, 1.2)
            log.info(
                "Delivery %s will be retried: %s", delivery.id, attempt.error or attempt.status
            )
            await self._postpone(
                delivery.id,
                max(pause, retry_after),
                attempts=_log(attempts),
                retries=str(retries + 1),
            )

    async def _end(self, delivery: Delivery, state: DeliveryState, attempts: list[Attempt]) -> None:
        metrics.WEBHOOKS.labels(state).inc()
        record = _log(attempts or delivery.attempts)
        await self._amend(delivery.id, "over", state=state, attempts=record)

    async def _amend(self, delivery_id: str, mode: str, **changes: str) -> bool:
        """Updates a delivery; False when it was deleted with its job."""
        pairs = [word for pair in changes.items() for word in pair]
        script = self._amendment(keys=[self.keys.prefix], args=[delivery_id, mode, *pairs])
        return bool(await cast(Awaitable[Any], script))

    async def _postpone(self, delivery_id: str, seconds: float, **changes: str) -> None:
        pairs = [word for pair in changes.items() for word in pair]
        await cast(
            Awaitable[Any],
            self._later(keys=[self.keys.prefix], args=[delivery_id, seconds, *pairs]),
        )


async def send_webhooks(settings: Settings) -> None:
    """Runs a :class:`Sender` with its own connections until canceled."""
    async with (
        Redis.from_url(settings.redis_url, socket_timeout=10) as redis,
        open_client(settings.webhook_allow_private) as http,
    ):
        await Sender(settings, redis, http).run()


def _reason(failure: httpx.HTTPError | httpx.InvalidURL) -> str:
    """Error shown to the tenant: the kind of failure, without details of the private network."""
    if NOT_PUBLIC in str(failure):
        return NOT_PUBLIC
    for kind, words in _FAILURES.items():
        if isinstance(failure, kind):
            return words
    return "the request failed"


def _log(attempts: list[Attempt]) -> str:
    return json.dumps([attempt.model_dump(mode="json") for attempt in attempts[-20:]])
