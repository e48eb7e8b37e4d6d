"""Middleware for every request: request id, security headers, metrics and access log."""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.access.rate_limit import Allowance
from service.api.requests.headers import trace_id, trace_parent
from service.telemetry import logs, metrics

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_POLICY = (
    b"content-security-policy",
    (
        b"default-src 'self'; img-src 'self' blob: data:; style-src 'self' 'unsafe-inline'; "
        b"object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
)
"""Default Content-Security-Policy, for responses without their own."""
_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
PROBES = ("/livez", "/readyz", "/metrics")
"""Requested frequently by orchestrators, under any host name."""


def _rate_limit(scope: Scope) -> list[tuple[bytes, bytes]]:
    allowance: Allowance | None = scope["state"].get("allowance")
    return allowance.headers if allowance else []


_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})


class RequestContext:
    """Assigns a request id (the client's, if well-formed), adds security headers, and records the
    duration.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = Headers(scope=scope)
        offered = sent.get("x-request-id", "")
        request_id = offered if _REQUEST_ID.fullmatch(offered) else secrets.token_hex(16)
        scope.setdefault("state", {})["request_id"] = request_id
        logs.request_id.set(request_id)
        logs.trace.set(trace_id(trace_parent(sent.get("traceparent"))) or "-")
        started, status = time.perf_counter(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                raw = [
                    (name, value) for name, value in message["headers"] if name != b"x-request-id"
                ]
                policy = (
                    () if any(name == b"content-security-policy" for name, _ in raw) else (_POLICY,)
                )
                message["headers"] = [
                    *raw,
                    (b"x-request-id", request_id.encode()),
                    *_ALWAYS,
                    *_rate_limit(scope),
                    *policy,
                ]
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            seconds = time.perf_counter() - started
            metrics.HTTP_TIME.labels(method, route, f"{status // 100}xx").observe(seconds)
            if scope["path"] not in PROBES:
                log.info("%s %s: %d in %.1f ms", method, route, status, 1000 * seconds)
