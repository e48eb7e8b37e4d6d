"""Limits on request bodies: size, arrival time, rate, and the total held in memory at a time."""

from __future__ import annotations

import asyncio
from collections import Counter

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems.errors import BodyTimeout, BodyTooLarge, Busy
from service.settings import Settings

SHARES = 3
"""One principal may hold 1/SHARES of the total, or one body of the maximum size if that is more."""

BURST_SECONDS = 0.125
"""How far one principal's bodies may be ahead of their rate."""


class BodyLimit:
    """Middleware that enforces the limits, with or without a ``Content-Length``.

    Bodies are read after authentication (see :mod:`service.access.principals`), so shares are
    counted per principal.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        most = max(settings.max_body_bytes, settings.max_bodies_bytes)
        self.most = most
        self.share = (
            max(settings.max_body_bytes, most // SHARES) if settings.auth_required else most
        )
        self.held: Counter[str] = Counter()
        self._read_until: dict[str, float] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _Body(self, scope, receive)
        try:
            await self.app(scope, body.receive, send)
        finally:
            body.drop()

    def pause(self, principal: str, size: int) -> float:
        """Seconds to wait after reading ``size`` bytes, so that other requests get their turn.

        While a body waits, the server stops reading its connection. Without it, thirty bodies at
        once keep the event loop busy with their bytes alone.
        """
        now = asyncio.get_running_loop().time()
        for idle in [name for name, until in self._read_until.items() if until < now - 1]:
            del self._read_until[idle]
        start = max(self._read_until.get(principal, 0.0), now - BURST_SECONDS)
        self._read_until[principal] = start + size / self.settings.body_bytes_per_second
        return max(0.0, self._read_until[principal] - now)


class _Body:
    """Receives the body of one request and counts its bytes."""

    def __init__(self, limit: BodyLimit, scope: Scope, receive: Receive) -> None:
        self.limit = limit
        self.scope = scope
        self._receive = receive
        announced = Headers(scope=scope).get("content-length", "")
        most = limit.settings.max_body_bytes
        self.too_large = announced.isdigit() and int(announced) > most
        self.received = 0
        self.principal = ""
        self.deadline: float | None = None
        self.complete = False

    async def receive(self) -> Message:
        """Receives the next message; after the end of the body no time limit applies."""
        if self.complete:
            return await self._receive()
        if self.too_large:
            raise self._refusal()
        message = await self._in_time()
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self._hold(size)
            self.complete = not message.get("more_body", False)
            if pause := self.limit.pause(self.principal, size):
                await asyncio.sleep(pause)
                if self.deadline is not None:
                    self.deadline += pause
        return message

    def drop(self) -> None:
        """Releases the body's bytes at the end of the request."""
        self.limit.held[self.principal] -= self.received
        if not self.limit.held[self.principal]:
            del self.limit.held[self.principal]

    async def _in_time(self) -> Message:
        settings, now = self.limit.settings, asyncio.get_running_loop().time()
        if self.deadline is None:
            self.deadline = now + settings.body_seconds
        try:
            async with asyncio.timeout_at(min(self.deadline, now + settings.body_pause_seconds)):
                return await self._receive()
        except TimeoutError as error:
            raise BodyTimeout(
                f"The request's body did not arrive within {settings.body_seconds:g} s, or paused"
                f" for {settings.body_pause_seconds:g} s."
            ) from error

    def _hold(self, size: int) -> None:
        held, limit = self.limit.held, self.limit
        if not self.received:
            self.principal = self.scope.get("state", {}).get("principal", "")
        if self.received + size > limit.settings.max_body_bytes:
            raise self._refusal()
        if held[self.principal] + size > limit.share or held.total() + size > limit.most:
            raise Busy("The service is receiving too many request bodies; try again in a moment.")
        self.received += size
        held[self.principal] += size

    def _refusal(self) -> BodyTooLarge:
        most = self.limit.settings.max_body_bytes
        return BodyTooLarge(f"The request is larger than the limit of {most} bytes.")
