"""HTTP load generator with persistent connections, at maximum or at a fixed rate.

It writes HTTP/1.1 itself, because client and server share the machine's cores and a client library
would need as much CPU time as the service.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

CONNECTIONS = 8


@dataclass(frozen=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    body: bytes = b""
    kind: str = "application/json"

    def encoded(self, host: str) -> bytes:
        """Encodes the request as HTTP/1.1."""
        head = (
            f"{self.method} {self.path} HTTP/1.1\r\nHost: {host}\r\nContent-Type:"
            f" {self.kind}\r\nContent-Length: {len(self.body)}\r\n\r\n"
        )
        return head.encode() + self.body


def get(path: str) -> Request:
    return Request("GET", path)


def post(path: str, body: Any) -> Request:
    return Request("POST", path, json.dumps(body).encode())


def form(path: str, image: bytes, spec: dict[str, Any]) -> Request:
    """A multipart form with a JPEG file and a spec."""
    boundary = secrets.token_hex(16)
    parts = [
        (
            f'--{boundary}\r\nContent-Disposition: form-data; name="spec"\r\n\r\n'
            f"{json.dumps(spec)}\r\n"
        ).encode(),
        f'--{boundary}\r\nContent-Disposition: form-data; name="image";'
        ' filename="image"\r\nContent-Type: image/jpeg\r\n\r\n'.encode(),
        image,
        f"\r\n--{boundary}--\r\n".encode(),
    ]
    return Request("POST", path, b"".join(parts), f"multipart/form-data; boundary={boundary}")


def spread(seconds: list[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum of latencies, in milliseconds."""
    cuts = (
        statistics.quantiles(seconds, n=100, method="inclusive")
        if len(seconds) > 1
        else seconds * 99
    )
    return {
        "p50_ms": round(1000 * cuts[49], 1),
        "p99_ms": round(1000 * cuts[98], 1),
        "max_ms": round(1000 * max(seconds), 1),
    }


async def _answer(reader: asyncio.StreamReader) -> int:
    """Reads the next response and returns its status; discards the body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length))
    return int(head[9:12])


async def _hammer(
    url: str, total: int, request: Callable[[int], Request], per_second: float
) -> dict[str, Any]:
    at = urlsplit(url)
    numbers, seconds, codes = iter(range(total)), list[float](), Counter[int]()
    streams = [await asyncio.open_connection(at.hostname, at.port) for _ in range(CONNECTIONS)]
    started = time.perf_counter()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in numbers:
            data = request(number).encoded(at.netloc)
            due = started + number / per_second if per_second else time.perf_counter()
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            writer.write(data)
            codes[await _answer(reader)] += 1
            seconds.append(time.perf_counter() - due)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(one(*stream) for stream in streams))
    took = time.perf_counter() - started
    return {
        "requests": total,
        "per_second": round(total / took, 1),
        **spread(seconds),
        "codes": dict(codes),
    }


def hammer(
    url: str, total: int, request: Callable[[int], Request], per_second: float = 0
) -> dict[str, Any]:
    """Sends ``total`` requests over eight connections and measures rate and latency.

    Args:
        per_second: rate at which requests become due, independent of responses (open loop). The
            latency is measured from the due time. 0: each connection sends as fast as it can.
    """
    return asyncio.run(_hammer(url, total, request, per_second))
