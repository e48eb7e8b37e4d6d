"""A worker's port for orchestrators and Prometheus: ``/livez``, ``/readyz`` and ``/metrics``, in
the process that computes.

One event loop in a thread of its own: a connection that says nothing costs a few kilobytes until
its time is up, and holds nobody up.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

Problem = Callable[[], str | None]
"""What keeps the worker from taking jobs; None when nothing does."""

EXCHANGE_SECONDS = 5.0
"""For a request and its answer together, however slowly they drip."""
LONGEST_REQUEST = 16_384
_TEXT = "text/plain; charset=utf-8"


def serve(port: int, problem: Problem, exchange_seconds: float = EXCHANGE_SECONDS) -> None:
    """Answers on ``port`` from a thread until the process ends.

    Raises:
        OSError: the port is taken.
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
        server = await asyncio.start_server(answer, sock=listening, limit=LONGEST_REQUEST)
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(run()), name="exporter", daemon=True).start()


def _response(head: bytes, problem: Problem) -> bytes:
    """The whole answer to a request's first lines."""
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
