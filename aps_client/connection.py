"""Where the service is, and how patient the client is."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from aps_core import __version__

SERVER = "APS_SERVER"
API_KEY = "APS_API_KEY"


@dataclass(frozen=True)
class Retry:
    """Failures that may pass (no answer, 429, 5xx) are repeated; submissions carry an idempotency
    key, so none becomes two jobs.
    """

    attempts: int = 4
    """Tries in all."""
    pause_seconds: float = 0.5
    """Before the second try; doubled for each further one, less up to half by chance."""
    longest_seconds: float = 60.0
    """A service that asks for a longer pause is taken at its word: the error is raised instead."""


@dataclass(frozen=True)
class Connection:
    """Address, key and timeouts; left out, ``APS_SERVER`` and ``APS_API_KEY`` tell, then the
    service of this machine.
    """

    server: str = field(default_factory=lambda: os.environ.get(SERVER, "http://127.0.0.1:8000"))
    api_key: str | None = field(default_factory=lambda: os.environ.get(API_KEY), repr=False)
    timeout: float = 30.0
    """Seconds to connect, and between two bytes of an answer."""
    retry: Retry = Retry()

    @classmethod
    def of(cls, server: str | Connection | None, api_key: str | None) -> Connection:
        """The connection that a client's arguments mean."""
        if isinstance(server, Connection):
            return server
        known = cls()
        return replace(known, server=server or known.server, api_key=api_key or known.api_key)

    def options(self) -> dict[str, Any]:
        """Arguments of httpx's clients."""
        headers = {"User-Agent": f"aps-client/{__version__}"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return {"base_url": self.server, "headers": headers, "timeout": httpx.Timeout(self.timeout)}
