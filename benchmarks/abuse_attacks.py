"""Attacks that one tenant can mount with an ordinary API key; each one runs in its own process.

    python -m benchmarks.abuse_attacks NAME URL TOKEN SLEEPER SECONDS

Every attack repeats its request on many connections until its time is over.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import httpx
import numpy as np
from PIL import Image

DENOISE = {"operator": {"type": "denoise"}, "sigma": 0.1}
HUGE = {**DENOISE, "sampler": {"steps": 128, "inner_steps": 5000}}
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Aim:
    """The service, with the attacker's key."""

    http: httpx.AsyncClient
    sleeper: str
    """Address of a host that accepts connections and says nothing."""


def picture(width: int, height: int, kind: str = "JPEG") -> bytes:
    """A picture with some noise."""
    noise = np.random.default_rng(0).integers(0, 255, (height // 8, width // 8, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).resize((width, height)).save(out, kind, quality=90)
    return out.getvalue()


def _uri(data: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(data).decode()


Attack = Callable[[Aim, int], Awaitable[httpx.Response]]


async def endless_jobs(aim: Aim, _: int) -> httpx.Response:
    """Submits jobs that would compute for weeks."""
    body = {**HUGE, "image": _MEDIUM}
    return await aim.http.post("/v1/restore", json=body)


async def webhook_events(aim: Aim, _: int) -> httpx.Response:
    """A webhook with 300,000 events."""
    hook = {"url": "https://example.com/", "events": ["job.completed"] * 300_000}
    body = {**DENOISE, "image": _SMALL, "webhook": hook}
    return await aim.http.post("/v1/restore", json=body)


async def unknown_fields(aim: Aim, _: int) -> httpx.Response:
    """A spec of 300,000 fields that do not exist."""
    return await aim.http.post("/v1/restore", content=_UNKNOWN, headers=JSON)


async def large_masks(aim: Aim, number: int) -> httpx.Response:
    """250 bytes that name a stored picture of 57 megapixels as image and mask."""
    if not _stored:
        async with _storing:
            if not _stored:
                photo = picture(7600, 7500)
                headers = {"Content-Type": "image/jpeg"}
                kept = await aim.http.post("/v1/files", content=photo, headers=headers)
                _stored.append(f"sha256:{kept.raise_for_status().json()['sha256']}")
    body = {
        "operator": {"type": "inpainting", "mask": "upload"},
        "image": _stored[0],
        "mask": _stored[0],
        "working_size": 64 + number % 64,
    }
    return await aim.http.post("/v1/restore", json=body)


async def many_photographs(aim: Aim, _: int) -> httpx.Response:
    """Photographs of 12 megapixels, as forms."""
    spec = json.dumps({**DENOISE, "working_size": 64})
    return await aim.http.post("/v1/restore", files={"image": _PHOTO}, data={"spec": spec})


async def inline_photographs(aim: Aim, _: int) -> httpx.Response:
    """The same in JSON."""
    return await aim.http.post("/v1/restore", content=_INLINE, headers=JSON)


async def hanging_addresses(aim: Aim, _: int) -> httpx.Response:
    """Submits pictures by a URL that never responds."""
    return await aim.http.post("/v1/restore", json={**DENOISE, "image": aim.sleeper})


async def stalled_bodies(aim: Aim, _: int) -> httpx.Response:
    """Sends bodies of 20 MB without their last byte."""

    async def body() -> AsyncIterator[bytes]:
        for _ in range(19):
            yield b" " * 1_000_000
        await asyncio.sleep(3)
        yield b"x"

    return await aim.http.post("/v1/restore", content=body(), headers=JSON)


async def waiting_jobs(aim: Aim, _: int) -> httpx.Response:
    """Submits as many small jobs as are accepted."""
    body = {**DENOISE, "image": _SMALL}
    return await aim.http.post("/v1/restore", json=body)


async def wrong_keys(aim: Aim, number: int) -> httpx.Response:
    """Sends requests with unknown API keys."""
    key = f"aps_{number % 2**48:012x}_{'x' * 43}"
    return await aim.http.get("/v1/jobs", headers={"Authorization": f"Bearer {key}"})


async def event_streams(aim: Aim, _: int) -> httpx.Response:
    """Holds event streams of a job open."""
    if not _stored:
        async with _storing:
            if not _stored:
                _stored.append((await waiting_jobs(aim, 0)).json()["urls"]["events"])
    async with aim.http.stream("GET", _stored[0]) as answer:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                async for _chunk in answer.aiter_bytes():
                    pass
    return answer


_SMALL, _MEDIUM = _uri(picture(32, 32)), _uri(picture(512, 512))
_UNKNOWN = json.dumps({f"field_{n:07}": n for n in range(300_000)}).encode()
_PHOTO = picture(4000, 3000)
_INLINE = json.dumps({**DENOISE, "working_size": 64, "image": _uri(_PHOTO)}).encode()
_stored: list[str] = []
_storing = asyncio.Lock()

ATTACKS: dict[str, tuple[Attack, int]] = {
    "endless jobs": (endless_jobs, 8),
    "300,000 webhook events": (webhook_events, 4),
    "300,000 unknown fields": (unknown_fields, 4),
    "masks of 57 megapixels": (large_masks, 12),
    "60 photographs at a time": (many_photographs, 60),
    "30 photographs in JSON": (inline_photographs, 30),
    "60 hanging addresses": (hanging_addresses, 60),
    "30 stalled bodies of 20 MB": (stalled_bodies, 30),
    "as many jobs as are let in": (waiting_jobs, 8),
    "wrong keys": (wrong_keys, 16),
    "400 event streams": (event_streams, 400),
}
"""By name: the request, and on how many connections at a time."""


async def attack(name: str, url: str, token: str, sleeper: str, seconds: float) -> Counter[str]:
    """Repeats one request until the time is up; returns the responses' statuses."""
    request, connections = ATTACKS[name]
    over, codes = time.monotonic() + seconds, Counter[str]()
    limits = httpx.Limits(max_connections=connections)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, limits=limits) as http:
        aim = Aim(http, sleeper)

        async def one(first: int) -> None:
            number = first
            while time.monotonic() < over:
                try:
                    codes[str((await request(aim, number)).status_code)] += 1
                except httpx.HTTPError as error:
                    codes[type(error).__name__] += 1
                number += connections

        await asyncio.gather(*(one(number) for number in range(connections)))
    return codes


if __name__ == "__main__":
    os.setpriority(os.PRIO_PROCESS, 0, 19)  # an attacker computes on a machine of its own
    _name, _url, _token, _sleeper, _seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(attack(_name, _url, _token, _sleeper, float(_seconds)))))
