"""Address, credentials, timeouts and retry policy of a client."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from aps_core import __version__
from aps_core.errors import InvalidSpec

SERVER = "APS_SERVER"
API_KEY = "APS_API_KEY"


@dataclass(frozen=True)
class Retry:
    """Retry policy for transient failures: no response, and the errors marked retryable (429, 5xx).

    Submissions carry an idempotency key, so a retry never creates a second job.
    """

    attempts: int = 4
    """Total number of attempts, at least 1."""
    pause_seconds: float = 0.5
    """Delay before the second attempt. It doubles with each further attempt; jitter shortens it by
    up to half.
    """
    longest_seconds: float = 60.0
    """If the service asks for a longer delay than this, the error is raised instead."""


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
        """Checks the address.

        Raises:
            InvalidSpec: it is not a URL of HTTP or HTTPS.
        """
        try:
            url = urlsplit(self.server)
            valid = url.scheme in ("http", "https") and url.hostname and url.port != 0
        except ValueError:  # brackets, or the port
            valid = False
        if not valid:
            raise InvalidSpec(
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
            InvalidSpec: the address is not a URL of HTTP or HTTPS.
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
