"""Event streams resume after the last received event, also at another API process."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from service.api.events.hub import EventHub, Frame, _Feed, is_event_id
from tests.apis import running_api
from tests.stack import Stack, stream_events

LONG = {"steps": 12, "inner_steps": 4}


def test_every_event_arrives_once_despite_a_server_restart(stack: Stack, tmp_path: Path) -> None:
    job, seen, log = stack.submit(sampler=LONG), [], tmp_path / "log"
    with running_api(stack.settings, log) as first:
        process = int(re.findall(r"Started server process \[(\d+)\]", log.read_text())[-1])
        following = stream_events(first, job["id"])
        seen += (next(following) for _ in range(4))
        os.kill(process, signal.SIGKILL)
        with pytest.raises(httpx.RemoteProtocolError):
            seen += following
    for event in stream_events(stack.http, job["id"], seen[-1][0]):  # another process
        seen.append(event)
        if len(seen) >= 8:
            break
    with running_api(stack.settings, log) as restarted:
        seen += stream_events(restarted, job["id"], seen[-1][0])
    assert seen == list(stack.events(job["id"]))
    assert [data["step"] for _, kind, data in seen if kind == "progress"] == list(
        range(1, LONG["steps"] + 1)
    )
    assert seen[-1][1] == "done"
    assert seen[-1][2]["job"]["state"] == "succeeded"


@pytest.mark.parametrize(
    "after", ["", "x", "5", "-1-0", "99999999999999999999-0", "0-18446744073709551615", "٣-٣"]
)
def test_an_invalid_event_id_starts_at_the_first_event(stack: Stack, after: str) -> None:
    assert not is_event_id(after)
    job = stack.submit(sampler={"steps": 1, "inner_steps": 1})
    stack.wait(job["id"])
    headers = {b"Last-Event-ID": after.encode()}
    answer = stack.http.get(f"/v1/jobs/{job['id']}/events", headers=headers)
    assert answer.status_code == 200
    assert answer.text.count("event: ") == len(list(stack.events(job["id"])))


def test_the_largest_event_id_has_nothing_after_it(stack: Stack) -> None:
    job = stack.submit(sampler={"steps": 1, "inner_steps": 1})
    stack.wait(job["id"])
    assert list(stack.events(job["id"], after="9223372036854775807-9223372036854775807")) == []


def test_an_event_that_cannot_be_read_ends_streams_but_not_the_hub(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients then reconnect. A canceled hub ends, although a client caught its cancellation."""
    monkeypatch.setattr("service.api.events.hub.OUTAGE_SECONDS", 0)
    hub, reads = EventHub(cast(Any, None), cast(Any, None)), []

    async def read() -> None:
        reads.append(None)
        if len(reads) == 1:
            raise ValueError("an event that cannot be read")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return

    async def nothing() -> None:
        """Checks no job."""

    async def run() -> None:
        stream: asyncio.Queue[Frame | None] = asyncio.Queue()
        hub._feeds["key"] = _Feed("job", "0-0", {stream})
        hub._wanted.set()
        running = asyncio.create_task(hub.run())
        assert await asyncio.wait_for(stream.get(), 5) is None
        hub._feeds["key"] = _Feed("job", "0-0")
        hub._wanted.set()
        while len(reads) < 2:
            await asyncio.sleep(0.01)
        running.cancel()
        done, _ = await asyncio.wait([running], timeout=5)
        assert done == {running}

    monkeypatch.setattr(hub, "_read", read)
    monkeypatch.setattr(hub, "_check", nothing)
    asyncio.run(asyncio.wait_for(run(), 30))
    assert "Events cannot be read" in caplog.text
    assert "Traceback" in caplog.text
