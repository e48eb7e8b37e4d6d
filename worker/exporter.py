"""HTTP endpoints of a worker for probes and Prometheus: ``/livez``, ``/readyz`` and ``/metrics``.

They run in the process that computes, in one event loop on its own thread, so that a silent
connection costs a few kilobytes until it times out and delays nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

Problem = Callable[[], str | None]
"""Returns why the worker is not ready to take jobs, or None if it is ready."""

EXCHANGE_SECONDS = 5.0
"""Time limit for reading a request and writing its response."""
MAX_REQUEST_BYTES = 16_384
_TEXT = "text/plain; charset=utf-8"


def serve(port: int, problem: Problem, exchange_seconds: float = EXCHANGE_SECONDS) -> None:
    """Serves on ``port`` in a daemon thread until the process ends.

    Raises:
        OSError: the port is in use.
    """
    listening = socket.create_server(("", port), backlog=128)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(exchange_seconds):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head, problem))
                await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, sock=listening, limit=MAX_REQUEST_BYTES)
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(run()), name="exporter", daemon=True).start()


def _response(head: bytes, problem: Problem) -> bytes:
    """The complete response to a request's header."""
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    status, kind, body = "200 OK", _TEXT, b""
    match path:
        case b"/metrics":
            kind, body = CONTENT_TYPE_LATEST, generate_latest(REGISTRY)
        case b"/livez":
            body = b"alive\n"
        case b"/readyz":
            found = problem()
            status = "503 Service Unavailable" if found else status
            body = f"{found or 'ready'}\n".encode()
        case _:
            status, body = "404 Not Found", b"not found\n"
    fields = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode() + (b"" if method == b"HEAD" else body)
