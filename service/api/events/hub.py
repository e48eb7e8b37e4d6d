"""A job's history as server-sent events: replayed from any event id, then live until the job ends.

Every API process has one :class:`EventHub`. It reads all followed histories over one Redis
connection, and serializes every event once for all of its followers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError
from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from aps_contract import Event, JobState
from service.api.app_state import Services
from service.jobs import event_from
from service.telemetry import metrics

BLOCK_MILLISECONDS = 100
"""Maximum delay until a newly followed job is read; events of the others arrive immediately."""
CHECK_SECONDS = 2.0
"""Interval at which jobs without new events are checked, as they may have been deleted."""
RETRY_MILLISECONDS = 2000
OUTAGE_SECONDS = 1.0
PAGE = 200
MAX_QUEUE = 2000
"""Maximum backlog of a client in events; beyond it the stream ends, and the client reconnects with
its Last-Event-ID.
"""
_EVENT_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")

log = logging.getLogger(__name__)


def is_event_id(text: str) -> bool:
    """Whether ``text`` is a valid stream id: milliseconds and a sequence number."""
    return _EVENT_ID.fullmatch(text) is not None and all(
        int(part) < 2**63 for part in text.split("-")
    )


@dataclass(frozen=True)
class Frame:
    """A serialized event."""

    place: tuple[int, int]
    """The event's id as comparable numbers."""
    data: bytes
    last: bool
    kind: str
    content: dict[str, Any]
    """The event before it was serialized."""


Followers = set[asyncio.Queue[Frame | None]]


@dataclass
class _Feed:
    """A job that is followed."""

    job_id: str
    cursor: str
    followers: Followers = field(default_factory=set)
    checked_at: float = field(default_factory=time.monotonic)

    def send(self, frame: Frame | None) -> None:
        """Sends a frame to all followers; None ends their streams."""
        for queue in list(self.followers):
            if queue.qsize() > MAX_QUEUE:
                self.followers.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(frame)


class EventHub:
    """Distributes the events of jobs to the clients of this process that follow them."""

    def __init__(self, redis: Redis, services: Services) -> None:
        self.redis = redis
        self.services = services
        self._feeds: dict[str, _Feed] = {}
        self._wanted = asyncio.Event()

    async def follow(self, job_id: str, after: str) -> AsyncIterator[Frame]:
        """Yields events after the id ``after`` ('0-0': all). Ends after the job's last event, when
        the job is deleted, or when the store fails.
        """
        key, seen = self._key(job_id), _place(after)
        with contextlib.suppress(RedisError):  # the stream ends; the client reconnects
            async with self._queue(job_id, key) as queue:
                async for frame in self._history(job_id, key, after):
                    seen = frame.place
                    yield frame
                    if frame.last:
                        return
                while (live := await queue.get()) is not None:
                    if live.place > seen:
                        seen = live.place
                        yield live
                    if live.last:
                        return

    async def run(self) -> None:
        """Reads and distributes events until canceled."""
        running = asyncio.current_task()
        assert running is not None
        while not running.cancelling():  # a client's timeout may have caught the cancellation
            await self._wanted.wait()
            try:
                await self._read()
                await self._check()
            except RedisError as error:
                log.warning("Events cannot be read: %s", error)
                await self._end_streams()
            except Exception:  # an event that cannot be read; without this loop, all streams stall
                log.exception("Events cannot be read")
                await self._end_streams()
            if not self._feeds:
                self._wanted.clear()

    async def _end_streams(self) -> None:
        """Ends every stream, so that its client reconnects, and waits a while."""
        for feed in self._feeds.values():
            feed.send(None)
        self._feeds.clear()
        await asyncio.sleep(OUTAGE_SECONDS)

    @asynccontextmanager
    async def _queue(self, job_id: str, key: str) -> AsyncIterator[asyncio.Queue[Frame | None]]:
        """A queue of live events. The caller reads the history after subscribing, so no event is
        lost; duplicates are recognized by their ids.
        """
        queue: asyncio.Queue[Frame | None] = asyncio.Queue()
        if key not in self._feeds:
            newest: Any = await self.redis.xrevrange(key, count=1)
            cursor = newest[0][0].decode() if newest else "0-0"
            self._feeds.setdefault(key, _Feed(job_id, cursor))
        feed = self._feeds[key]
        feed.followers.add(queue)
        self._wanted.set()
        try:
            yield queue
        finally:
            feed.followers.discard(queue)
            if not feed.followers and self._feeds.get(key) is feed:
                del self._feeds[key]

    async def _history(self, job_id: str, key: str, after: str) -> AsyncIterator[Frame]:
        while True:
            page: Any = await self.redis.xrange(key, f"({after}", "+", PAGE)
            for raw_id, fields in page:
                event = event_from(raw_id, fields)
                after = event.id
                yield await self._frame(job_id, event)
            if len(page) < PAGE:
                return

    async def _read(self) -> None:
        cursors: Any = {key: feed.cursor for key, feed in self._feeds.items()}
        if not cursors:
            return
        answer: Any = await self.redis.xread(cursors, count=PAGE, block=BLOCK_MILLISECONDS)
        for raw_key, entries in answer:
            feed = self._feeds.get(raw_key.decode())
            for raw_id, fields in entries if feed else ():
                assert feed is not None
                event = event_from(raw_id, fields)
                feed.cursor, feed.checked_at = event.id, time.monotonic()
                feed.send(await self._frame(feed.job_id, event))

    async def _check(self) -> None:
        """Ends the feeds of jobs that were deleted, or whose final event has been trimmed."""
        now = time.monotonic()
        due = [feed for feed in self._feeds.values() if now - feed.checked_at > CHECK_SECONDS]
        if not due:
            return
        async with self.redis.pipeline(transaction=False) as pipe:
            for feed in due:
                pipe.hget(self._job_key(feed.job_id), "state")
            states: list[bytes | None] = await pipe.execute()
        for feed, state in zip(due, states, strict=True):
            feed.checked_at = now
            if state is None or JobState(state.decode()).terminal:
                feed.send(None)

    async def _frame(self, job_id: str, event: Event) -> Frame:
        last = event.type == "done"
        data = (
            await run_in_threadpool(_with_job, self.services, job_id, event)
            if last
            else with_link(f"/v1/jobs/{job_id}", event)
        )
        sent = ServerSentEvent(
            data=json.dumps(data), event=event.type, id=event.id, retry=RETRY_MILLISECONDS
        )
        return Frame(
            place=_place(event.id), data=sent.encode(), last=last, kind=event.type, content=data
        )

    def _job_key(self, job_id: str) -> str:
        return f"{self.services.settings.key_prefix}job:{job_id}"

    def _key(self, job_id: str) -> str:
        return f"{self._job_key(job_id)}:events"


async def job_events(hub: EventHub, job_id: str, after: str) -> AsyncIterator[bytes]:
    """Events after the id ``after``, as they are sent."""
    with metrics.FOLLOWERS.track_inprogress():
        async for frame in hub.follow(job_id, after):
            yield frame.data


async def until_over(hub: EventHub, job_id: str, seconds: float) -> None:
    """Returns when the job has ended, after so many seconds, or when the store is gone."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for _ in hub.follow(job_id, "0-0"):
                pass


def _place(event_id: str) -> tuple[int, int]:
    milliseconds, _, number = event_id.partition("-")
    return int(milliseconds), int(number)


def with_link(base: str, event: Event) -> dict[str, Any]:
    """The event's data; with the link to its preview, if it has one. ``base`` is the job's."""
    if event.type == "progress" and event.data.get("preview", True):
        return {**event.data, "preview_url": f"{base}/previews/{event.data['step']}"}
    if event.type == "inner" and event.data.get("preview", False):
        return {**event.data, "current_preview_url": f"{base}/previews/current"}
    return event.data


def _with_job(services: Services, job_id: str, event: Event) -> dict[str, Any]:
    """Adds the complete job to the data of the final event."""
    job = services.store.get(job_id)
    return (
        event.data
        if job is None
        else {**event.data, "job": services.view(job).model_dump(mode="json")}
    )
