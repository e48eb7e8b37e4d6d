"""Protects a service without API keys against requests from other web sites in the user's browser.

Any web page can send requests to this machine, and can even resolve its own host name to it (DNS
rebinding). The former is detected by ``Origin``, the latter by ``Host``.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.middleware import PROBES
from service.api.problems.errors import Misdirected
from service.api.problems.handlers import library_error
from service.settings import Settings

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class HostGuard:
    """Checks ``Host`` and ``Origin`` of every request except health probes."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.open = not settings.auth_required
        self.hosts = tuple(settings.allowed_hosts) or (
            LOOPBACK if self.open and settings.on_loopback else ()
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection."""
        if (
            scope["type"] == "http"
            and scope["path"] not in PROBES
            and (refusal := self._refusal(scope))
        ):
            response = await library_error(Request(scope), Misdirected(refusal))
            await response(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.hosts and _name(host) not in self.hosts:
            return (
                f"The host {host[:100]!r} is not allowed (allowed: {', '.join(self.hosts)}); see"
                " APS_ALLOWED_HOSTS."
            )
        if (
            self.open
            and (origin := headers.get("origin")) is not None
            and origin_host(origin) != host
        ):
            return f"Requests from pages of {origin[:100]!r} are not allowed."
        if self.open and self.settings.auth == "auto" and not _local(scope.get("server")):
            return (
                "Without API keys the service is available on loopback only; see APS_HOST and"
                " APS_AUTH."
            )
        return None


def origin_host(origin: str) -> str | None:
    """Host and port of an ``Origin``; None if it has none, which matches no host."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def _name(host: str) -> str:
    """The host name in a ``Host`` header; empty if the header is malformed."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""


def _local(server: tuple[str, int | None] | None) -> bool:
    """Whether a connection arrived on loopback or a unix socket, regardless of its headers."""
    return server is None or server[1] is None or _is_loopback(server[0])


@lru_cache(maxsize=64)
def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK
