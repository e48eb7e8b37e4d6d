"""Many restorations in one request: ``client.batches``."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from aps_client import flows
from aps_client.connection import Retry
from aps_client.errors import BatchTimeout, seconds
from aps_client.exchange import Call, Flow, Pause, exchange
from aps_client.flows import Source
from aps_client.models import Batch
from aps_client.transport import AsyncTransport, Transport


def _submit(
    pictures: Sequence[Source], spec: Mapping[str, Any], options: flows.Options, retry: Retry
) -> Flow[Batch]:
    """``POST /v1/batches``, after ``POST /v1/files`` for every picture that is not a hash."""
    images = []
    for picture in pictures:
        if isinstance(picture, str) and picture.startswith("sha256:"):
            images.append(picture)
        else:
            stored = yield from flows.keep(picture, retry)
            images.append(f"sha256:{stored.sha256}")
    body = {"images": images, "spec": flows.plain(spec), **options.parts()}
    sent = {"json": body, "headers": options.headers()}
    answer = yield from exchange(Call("POST", "/v1/batches", sent), retry)
    return Batch.model_validate_json(answer.content)


def _get(batch: str | Batch, retry: Retry) -> Flow[Batch]:
    answer = yield from exchange(Call("GET", _link(batch)), retry)
    return Batch.model_validate_json(answer.content)


def _wait(batch: str | Batch, timeout: float | None, retry: Retry) -> Flow[Batch]:
    end = float("inf") if timeout is None else time.monotonic() + timeout
    known = batch if isinstance(batch, Batch) else None
    while True:
        left = end - time.monotonic()
        patience = min(left, retry.outage_seconds) if known else 0.0
        answer = yield from exchange(Call("GET", _link(batch)), retry, patience)
        known = Batch.model_validate_json(answer.content)
        if known.finished:
            return known
        left = end - time.monotonic()
        if left <= 0:
            raise BatchTimeout(known, timeout or 0)
        yield Pause(min(left, seconds(answer.headers.get("retry-after")) or 1.0))


def _cancel(batch: str | Batch, retry: Retry) -> Flow[Batch]:
    answer = yield from exchange(Call("POST", f"{_link(batch)}/cancel"), retry)
    return Batch.model_validate_json(answer.content)


def _delete(batch: str | Batch, retry: Retry) -> Flow[None]:
    yield from exchange(Call("DELETE", _link(batch)), retry)


def _archive(batch: str | Batch, retry: Retry) -> Flow[bytes]:
    answer = yield from exchange(Call("GET", f"{_link(batch)}/results.zip"), retry)
    return bytes(answer.content)


def _link(batch: str | Batch) -> str:
    return batch.urls["self"] if isinstance(batch, Batch) else f"/v1/batches/{flows.quoted(batch)}"


class Batches:
    """Batches of restorations: ``client.batches``. All methods raise ServiceError or Unreachable if
    a request fails.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._retry = transport.connection.retry

    def submit(
        self,
        pictures: Sequence[Source],
        operator: str | Mapping[str, Any] = "auto",
        *,
        webhook: str | Mapping[str, Any] | None = None,
        priority: str | None = None,
        cancel_after: float | None = None,
        idempotency_key: str | None = None,
        **spec: Any,
    ) -> Batch:
        """Uploads the pictures, one after the other, and submits a job for each.

        Args:
            pictures: paths, bytes, open binary files, or hashes of stored pictures; at most 100.
            operator: the degradation: a name, or a mapping with ``type`` and the operator's fields.
            webhook: URL to notify when a job ends, or a mapping with ``url`` and ``events``.
            priority: ``high``, ``normal`` or ``low``, of every job.
            cancel_after: seconds after which a job that has not ended is stopped.
            idempotency_key: key of the batch. With the same key and pictures, the service returns
                the same batch and tries again what it refused for a passing reason.
            spec: further fields of the spec.

        Returns:
            The batch as accepted. ``pictures`` lists those that were refused, and why.
        """
        options = _options(webhook, priority, cancel_after, idempotency_key)
        whole = _with(operator, spec)
        return self._transport.do(_submit(pictures, whole, options, self._retry))

    def get(self, batch: str | Batch) -> Batch:
        """The batch, or that with this id, as it is now."""
        return self._transport.do(_get(batch, self._retry))

    def wait(self, batch: str | Batch, timeout: float | None = None) -> Batch:
        """Waits until no job of the batch is queued or running.

        Raises:
            BatchTimeout: that takes longer than ``timeout`` seconds; the jobs keep running.
        """
        return self._transport.do(_wait(batch, timeout, self._retry))

    def archive(self, batch: str | Batch) -> bytes:
        """The result files of all pictures that are done, as a ZIP file."""
        return self._transport.do(_archive(batch, self._retry))

    def cancel(self, batch: str | Batch) -> Batch:
        """Cancels all unfinished jobs."""
        return self._transport.do(_cancel(batch, self._retry))

    def delete(self, batch: str | Batch) -> None:
        """Deletes the batch with its jobs and all of their files.

        Raises:
            Conflict: one of the jobs is running; cancel the batch first.
        """
        self._transport.do(_delete(batch, self._retry))


class AsyncBatches:
    """Batches of restorations with :class:`aps_client.AsyncClient`: ``client.batches``."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._retry = transport.connection.retry

    async def submit(
        self,
        pictures: Sequence[Source],
        operator: str | Mapping[str, Any] = "auto",
        *,
        webhook: str | Mapping[str, Any] | None = None,
        priority: str | None = None,
        cancel_after: float | None = None,
        idempotency_key: str | None = None,
        **spec: Any,
    ) -> Batch:
        """Uploads the pictures, one after the other, and submits a job for each.

        Arguments and result are those of :meth:`Batches.submit`.
        """
        options = _options(webhook, priority, cancel_after, idempotency_key)
        return await self._transport.do(
            _submit(pictures, _with(operator, spec), options, self._retry)
        )

    async def get(self, batch: str | Batch) -> Batch:
        """The batch, or that with this id, as it is now."""
        return await self._transport.do(_get(batch, self._retry))

    async def wait(self, batch: str | Batch, timeout: float | None = None) -> Batch:
        """Waits until no job of the batch is queued or running; other tasks of the loop run.

        Raises:
            BatchTimeout: that takes longer than ``timeout`` seconds; the jobs keep running.
        """
        return await self._transport.do(_wait(batch, timeout, self._retry))

    async def archive(self, batch: str | Batch) -> bytes:
        """The result files of all pictures that are done, as a ZIP file."""
        return await self._transport.do(_archive(batch, self._retry))

    async def cancel(self, batch: str | Batch) -> Batch:
        """Cancels all unfinished jobs."""
        return await self._transport.do(_cancel(batch, self._retry))

    async def delete(self, batch: str | Batch) -> None:
        """Deletes the batch with its jobs and all of their files.

        Raises:
            Conflict: one of the jobs is running; cancel the batch first.
        """
        await self._transport.do(_delete(batch, self._retry))


def _options(
    webhook: str | Mapping[str, Any] | None,
    priority: str | None,
    cancel_after: float | None,
    idempotency_key: str | None,
) -> flows.Options:
    return flows.Options(
        webhook=webhook,
        priority=priority,
        cancel_after=cancel_after,
        idempotency_key=idempotency_key or str(uuid.uuid4()),
    )


def _with(operator: str | Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"operator": {"type": operator} if isinstance(operator, str) else operator, **spec}
