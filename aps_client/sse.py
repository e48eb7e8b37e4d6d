"""Following a job over server-sent events: what a stream remembers between two connections."""

from __future__ import annotations

import json

import httpx
from httpx_sse import ServerSentEvent

from aps_client.connection import Retry
from aps_client.errors import ServiceError, Unreachable
from aps_client.models import Event

SILENCE_SECONDS = 45
"""The service writes something every 15 seconds; a connection silent for longer is dead."""


class Follower:
    """State of a stream of events that outlives its connections."""

    def __init__(self, after: str, retry: Retry) -> None:
        self.retry = retry
        self.over = False
        self._last_id = after
        self._pause_seconds = 2.0
        self._failures = 0

    def headers(self) -> dict[str, str]:
        """Headers of the next connection, which resumes after the last complete event."""
        return {
            "Accept": "text/event-stream",
            **({"Last-Event-ID": self._last_id} if self._last_id else {}),
        }

    def accept(self, sent: ServerSentEvent) -> Event | None:
        """The job's event in ``sent``; None for one without data, such as a keep-alive."""
        self._last_id = sent.id or self._last_id
        if sent.retry is not None:
            self._pause_seconds = sent.retry / 1000
        if not sent.data:
            return None
        self._failures = 0
        self.over = sent.event == "done"
        return Event(self._last_id, sent.event, json.loads(sent.data))

    def broken(self, reason: Exception | None) -> float:
        """Seconds to wait before the next connection.

        Raises:
            ServiceError: the service refused for good.
            Unreachable: too many connections in a row brought nothing.
        """
        if isinstance(reason, ServiceError) and not reason.retryable:
            raise reason
        self._failures += 1
        if self._failures >= self.retry.attempts:
            raise Unreachable(
                f"The job's events broke off {self._failures} times in a row:"
                f" {reason or 'the service closed the connection'}."
            ) from reason
        return self._pause_seconds


def timeout(connect_seconds: float) -> httpx.Timeout:
    """Timeouts of a connection that is silent while a step is computed."""
    return httpx.Timeout(connect_seconds, read=SILENCE_SECONDS)
