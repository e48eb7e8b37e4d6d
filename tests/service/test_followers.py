"""Many clients follow one job at the same time, and all receive its last event."""

from __future__ import annotations

import asyncio

import httpx

from tests.stack import Stack

CLIENTS = 150
"""More clients than the default connections of a store client."""


def test_every_follower_receives_the_last_event(stack: Stack) -> None:
    job = stack.submit(sampler={"steps": 24, "inner_steps": 4})

    async def follow(http: httpx.AsyncClient) -> str:
        async with http.stream("GET", job["urls"]["events"]) as answer:
            answer.raise_for_status()
            last = ""
            async for line in answer.aiter_lines():
                last = line[7:] if line.startswith("event: ") else last
            return last

    async def all_of_them() -> list[str]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=stack.url, timeout=60, limits=limits) as http:
            return await asyncio.gather(*(follow(http) for _ in range(CLIENTS)))

    assert asyncio.run(all_of_them()) == ["done"] * CLIENTS
