"""Server-sent events of a job: the state that is kept across reconnections."""

from __future__ import annotations

import json
import time

import httpx
from httpx_sse import ServerSentEvent

from aps_client.connection import Retry
from aps_client.errors import ServiceError, Unreachable
from aps_contract import Event

SILENCE_SECONDS = 45
"""Read timeout in seconds: the service sends data or a keep-alive every 15 seconds."""


class Follower:
    """Position, backoff and end of one event stream."""

    def __init__(self, after: str, retry: Retry) -> None:
        self.retry = retry
        self.over = False
        self._last_id = after
        self._pause_seconds = 2.0
        self._failures = 0
        self._lost_at = 0.0

    def headers(self) -> dict[str, str]:
        """Headers of the next connection, which resumes after the last complete event."""
        return {
            "Accept": "text/event-stream",
            **({"Last-Event-ID": self._last_id} if self._last_id else {}),
        }

    def accept(self, sent: ServerSentEvent) -> Event | None:
        """Records a received event and parses it; None if it has no data, such as a keep-alive."""
        self._last_id = sent.id or self._last_id
        if sent.retry is not None:
            self._pause_seconds = sent.retry / 1000
        if not sent.data:
            return None
        self._failures = 0
        self.over = sent.event == "done"
        return Event(id=self._last_id, type=sent.event, data=json.loads(sent.data))

    def broken(self, reason: Exception | None) -> float:
        """Records a lost connection; returns the seconds to wait before reconnecting.

        Raises:
            ServiceError: the service refused with an error that is not transient.
            Unreachable: no connection delivered an event for too long.
        """
        if isinstance(reason, ServiceError) and not reason.retryable:
            raise reason
        now = time.monotonic()
        if not self._failures:
            self._lost_at = now
        self._failures += 1
        pause = self.retry.pause(self._failures, self._pause_seconds)
        lost_for = now - self._lost_at
        if self._failures >= self.retry.attempts and lost_for + pause > self.retry.outage_seconds:
            raise Unreachable(
                f"The event stream failed {self._failures} times in a row, for {lost_for:.0f} s:"
                f" {reason or 'the service closed the connection'}."
            ) from reason
        return pause


def timeout(connect_seconds: float) -> httpx.Timeout:
    """Timeouts of an event stream: ``connect_seconds``, and ``SILENCE_SECONDS`` for reads."""
    return httpx.Timeout(connect_seconds, read=SILENCE_SECONDS)
