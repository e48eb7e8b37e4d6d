"""A job's history as server-sent events: replayed from any event id, then live until the job
ends.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

from redis.asyncio import Redis
from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from service.api.app_state import Services
from service.jobs import Event, event_from
from service.telemetry import metrics

BLOCK_MILLISECONDS = 2000
RETRY_MILLISECONDS = 2000
_EVENT_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


def is_event_id(text: str) -> bool:
    """Whether ``text`` is an id the store may have given: two numbers, of milliseconds and of
    events in one.
    """
    return _EVENT_ID.fullmatch(text) is not None and all(
        int(part) < 2**63 for part in text.split("-")
    )


async def job_events(
    redis: Redis, services: Services, job_id: str, after: str
) -> AsyncIterator[ServerSentEvent]:
    """Events after the id ``after`` ('0-0': all). Ends after the job's last one."""
    key = f"{services.settings.key_prefix}job:{job_id}:events"
    with metrics.FOLLOWERS.track_inprogress():
        while True:
            answer: Any = await redis.xread({key: after}, count=200, block=BLOCK_MILLISECONDS)
            if not answer:
                if await run_in_threadpool(_over, services, job_id, after):
                    return
                continue
            for raw_id, fields in answer[0][1]:
                event = event_from(raw_id, fields)
                after = event.id
                data = (
                    await run_in_threadpool(_with_job, services, job_id, event)
                    if event.type == "done"
                    else _with_link(job_id, event)
                )
                yield ServerSentEvent(
                    data=json.dumps(data), event=event.type, id=event.id, retry=RETRY_MILLISECONDS
                )
                if event.type == "done":
                    return


async def until_over(redis: Redis, services: Services, job_id: str, seconds: float) -> None:
    """Returns when the job has ended, or after so many seconds."""
    key, after, deadline = (
        f"{services.settings.key_prefix}job:{job_id}:events",
        "0-0",
        time.monotonic() + seconds,
    )
    while (left := deadline - time.monotonic()) > 0:
        answer: Any = await redis.xread(
            {key: after}, count=200, block=max(1, min(BLOCK_MILLISECONDS, round(left * 1000)))
        )
        for raw_id, fields in answer[0][1] if answer else ():
            after = raw_id
            if fields[b"type"] == b"done":
                return


def _with_link(job_id: str, event: Event) -> dict[str, Any]:
    """Progress gets its preview's link."""
    if event.type == "progress" and event.data.get("preview", True):
        return {**event.data, "preview_url": f"/v1/jobs/{job_id}/previews/{event.data['step']}"}
    return event.data


def _with_job(services: Services, job_id: str, event: Event) -> dict[str, Any]:
    """The last event brings the whole job."""
    job = services.store.get(job_id)
    return (
        event.data
        if job is None
        else {**event.data, "job": services.view(job).model_dump(mode="json")}
    )


def _over(services: Services, job_id: str, after: str) -> bool:
    """Whether nothing can follow ``after``: the job is gone, or ended with an event the client
    has.
    """
    job = services.store.get(job_id)
    return job is None or (job.state.terminal and not services.store.events(job_id, after))
