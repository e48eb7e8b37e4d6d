"""Following a job over server-sent events (WHATWG HTML, section 9.2): lines become events, lost
connections are resumed.
"""

from __future__ import annotations

import json

import httpx

from aps_client.connection import Retry
from aps_client.errors import ServiceError, Unreachable
from aps_client.models import Event

SILENCE_SECONDS = 45
"""The service writes something every 15 seconds; a connection silent for longer is dead."""


class Follower:
    """What a stream of events has to remember, apart from the connection itself."""

    def __init__(self, after: str, retry: Retry) -> None:
        self.retry = retry
        self.over = False
        self._last_id, self._pause_seconds, self._failures = after, 2.0, 0
        self._type = ""
        self._data: list[str] = []

    def headers(self) -> dict[str, str]:
        """Headers of the next connection; half an event of the last one is forgotten, and sent
        again by the service.
        """
        self._type, self._data = "", []
        return {
            "Accept": "text/event-stream",
            **({"Last-Event-ID": self._last_id} if self._last_id else {}),
        }

    def feed(self, line: str) -> Event | None:
        """The event that ``line`` completes, if it does."""
        if not line:
            return self._complete()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "id":
                self._last_id = value
            case "event":
                self._type = value
            case "data":
                self._data.append(value)
            case "retry" if value.isdecimal():
                self._pause_seconds = int(value) / 1000
        return None

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

    def _complete(self) -> Event | None:
        if not self._data:
            return None
        event = Event(self._last_id, self._type or "message", json.loads("\n".join(self._data)))
        self._type, self._data, self._failures = "", [], 0
        self.over = event.type == "done"
        return event


def timeout(connect_seconds: float) -> httpx.Timeout:
    """Timeouts of a connection that is silent while a step is computed."""
    return httpx.Timeout(connect_seconds, read=SILENCE_SECONDS)
