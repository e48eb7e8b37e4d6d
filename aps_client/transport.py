"""Performs the flows of :mod:`aps_client.flows` over HTTP and follows event streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import httpx
from httpx_sse import EventSource

from aps_client import flows
from aps_client.connection import Connection
from aps_client.errors import ServiceError, error_of
from aps_client.exchange import Flow, Pause, T
from aps_client.models import Job
from aps_client.sse import Follower
from aps_client.sse import timeout as stream_timeout
from aps_contract import Event


class Transport:
    """Synchronous connections to one service."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.http = httpx.Client(**connection.options())

    def close(self) -> None:
        """Closes all connections."""
        self.http.close()

    def do(self, flow: Flow[T]) -> T:
        """Sends the requests of ``flow``, sleeps through its pauses and returns its value."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = next(flow)
                    continue
                try:
                    answer = self.http.request(step.method, step.url, **step.options)
                except (httpx.TransportError, httpx.InvalidURL) as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value

    def events(self, job: str | Job, after: str) -> Iterator[Event]:
        """Iterates over the events of a job after the id ``after``; reconnects when needed."""
        retry = self.connection.retry
        follower = Follower(after, retry)
        while True:
            failure: Exception | None = None
            received = False
            try:
                with self.http.stream(
                    "GET",
                    flows.link(job, "events"),
                    headers=follower.headers(),
                    timeout=stream_timeout(self.connection.timeout),
                ) as answer:
                    if answer.status_code >= 400:
                        answer.read()
                        raise error_of(answer)
                    for sent in EventSource(answer).iter_sse():
                        if (event := follower.accept(sent)) is not None:
                            received = True
                            yield event
                            if follower.over:
                                return
            except (httpx.TransportError, ServiceError) as error:
                failure = error
            if (
                failure is None
                and not received
                and self.do(flows.get(job, retry, retry.outage_seconds)).state.terminal
            ):
                return  # the job has ended and all its events were delivered
            time.sleep(follower.broken(failure))


class AsyncTransport:
    """Asynchronous connections to one service."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.http = httpx.AsyncClient(**connection.options())

    async def close(self) -> None:
        """Closes all connections."""
        await self.http.aclose()

    async def do(self, flow: Flow[T]) -> T:
        """Sends the requests of ``flow``, sleeps through its pauses and returns its value."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = next(flow)
                    continue
                try:
                    answer = await self.http.request(step.method, step.url, **step.options)
                except (httpx.TransportError, httpx.InvalidURL) as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value

    async def events(self, job: str | Job, after: str) -> AsyncIterator[Event]:
        """Iterates over the events of a job after the id ``after``; reconnects when needed."""
        retry = self.connection.retry
        follower = Follower(after, retry)
        while True:
            failure: Exception | None = None
            received = False
            try:
                async with self.http.stream(
                    "GET",
                    flows.link(job, "events"),
                    headers=follower.headers(),
                    timeout=stream_timeout(self.connection.timeout),
                ) as answer:
                    if answer.status_code >= 400:
                        await answer.aread()
                        raise error_of(answer)
                    async for sent in EventSource(answer).aiter_sse():
                        if (event := follower.accept(sent)) is not None:
                            received = True
                            yield event
                            if follower.over:
                                return
            except (httpx.TransportError, ServiceError) as error:
                failure = error
            if (
                failure is None
                and not received
                and (await self.do(flows.get(job, retry, retry.outage_seconds))).state.terminal
            ):
                return  # the job has ended and all its events were delivered
            await asyncio.sleep(follower.broken(failure))
