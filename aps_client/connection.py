"""Address, credentials, timeouts and retry policy of a client."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from aps_client.errors import InvalidArgument
from aps_core import __version__

SERVER = "APS_SERVER"
API_KEY = "APS_API_KEY"
LONGEST_PAUSE_SECONDS = 10.0


@dataclass(frozen=True)
class Retry:
    """Retry policy for transient failures: no response, and the errors marked retryable (429, 5xx).

    Submissions carry an idempotency key, so a retry never creates a second job.
    """

    attempts: int = 4
    """Total number of attempts, at least 1."""
    pause_seconds: float = 0.5
    """Delay before the second attempt. It doubles with each further attempt, up to 10 s; jitter
    shortens it by up to half.
    """
    longest_seconds: float = 60.0
    """If the service asks for a longer delay than this, the error is raised instead."""
    outage_seconds: float = 60.0
    """Following a job (events, previews, waiting) goes on, whatever the number of attempts, until
    the service has not responded for this long.
    """

    def pause(self, failures: int, first: float | None = None) -> float:
        """Delay after so many failures in a row, in seconds.

        Args:
            failures: failures so far, at least 1.
            first: delay after the first failure. None: ``pause_seconds``.
        """
        first = self.pause_seconds if first is None else first
        growth = 2.0 ** min(failures - 1, 16)
        return min(first * growth, max(first, LONGEST_PAUSE_SECONDS)) * random.uniform(0.5, 1)


@dataclass(frozen=True)
class Connection:
    """Address, API key, timeout and retry policy.

    The defaults come from ``APS_SERVER`` (else ``http://127.0.0.1:8000``) and ``APS_API_KEY``.
    """

    server: str = field(default_factory=lambda: os.environ.get(SERVER, "http://127.0.0.1:8000"))
    api_key: str | None = field(default_factory=lambda: os.environ.get(API_KEY), repr=False)
    timeout: float = 30.0
    """Seconds allowed for connecting, and between two bytes of a response."""
    retry: Retry = Retry()

    def __post_init__(self) -> None:
        """Checks the address and the API key, which often come from a file with a line break.

        Raises:
            InvalidArgument: the address is not a URL of HTTP or HTTPS, or the key has characters
                that no key has.
        """
        key = (self.api_key or "").strip()
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise InvalidArgument(
                "The API key contains a space, a line break or another character that no key has."
            )
        object.__setattr__(self, "api_key", key or None)
        object.__setattr__(self, "server", self.server.strip())
        try:
            url = urlsplit(self.server)
            whole = self.server.isprintable() and url.hostname and url.port != 0
            valid = whole and url.scheme in ("http", "https")
        except ValueError:  # brackets, or the port
            valid = False
        if not valid:
            raise InvalidArgument(
                "The address of the service must be a URL such as http://127.0.0.1:8000, not"
                f" '{self.server}'."
            )

    @classmethod
    def of(cls, server: str | Connection | None, api_key: str | None) -> Connection:
        """Resolves the arguments of a client.

        Args:
            server: URL, or a connection, which is returned unchanged. None: the default.
            api_key: API key. None: the default.

        Raises:
            InvalidArgument: the address or the key cannot be used.
        """
        if isinstance(server, Connection):
            return server
        given: dict[str, Any] = {"server": server, "api_key": api_key}
        return cls(**{name: value for name, value in given.items() if value})

    def options(self) -> dict[str, Any]:
        """Keyword arguments for :class:`httpx.Client` and :class:`httpx.AsyncClient`."""
        headers = {"User-Agent": f"aps-client/{__version__}"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return {"base_url": self.server, "headers": headers, "timeout": httpx.Timeout(self.timeout)}
