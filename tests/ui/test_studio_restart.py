"""The API restarts during a job: the page reconnects and resumes where it was."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Request, expect

from service.launch.processes import api_command, free_port
from service.launch.supervisor import process
from tests.stack import Stack, png
from tests.ui.pages import SLOW, choose, ended, sampler, scrub, submit

STEPS = 40


@contextmanager
def api(stack: Stack, port: int, log: Path) -> Iterator[None]:
    """Starts another API process of the running service on ``port``."""
    with process("API", api_command("127.0.0.1", port), stack.settings, log) as child:
        deadline = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/livez").raise_for_status()
                break
            except httpx.TransportError:
                assert child.poll() is None, log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield
        child.kill()  # as in a crash, with all streams open


def order(event_id: str) -> tuple[int, ...]:
    """Place of an event in its stream."""
    return tuple(map(int, event_id.split("-")))


def test_a_job_survives_the_restart_of_the_api(
    browser: Browser, stack: Stack, tmp_path: Path
) -> None:
    port, log, streams = free_port(), tmp_path / "log", list[Request]()
    page = browser.new_page(
        base_url=f"http://127.0.0.1:{port}", viewport={"width": 1280, "height": 900}
    )
    page.on(
        "request",
        lambda request: streams.append(request) if request.url.endswith("/events") else None,
    )
    with ExitStack() as first:
        first.enter_context(api(stack, port, log))
        page.goto("/")
        choose(page, png(64, 64))
        page.get_by_text("Noise only", exact=True).click()
        sampler(page, steps=STEPS, inner_steps=6)
        job_id = submit(page)
        expect(
            page.locator(".running").get_by_text(re.compile(rf"Step [3-9] of {STEPS}"))
        ).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("Connection lost")).to_be_visible(timeout=SLOW)
    reached = int(scrub(page).get_attribute("max") or 0)
    assert reached < STEPS
    with api(stack, port, log):
        ended(page, "Restored")
        expect(scrub(page)).to_have_attribute("max", str(STEPS))
        sent = [request.all_headers().get("last-event-id") for request in streams]
        steps = {
            data["step"]: event_id
            for event_id, kind, data in stack.events(job_id)
            if kind == "progress"
        }
        assert sent[0] is None
        # after it, the page may have seen progress inside the next step
        assert any(
            order(steps[reached]) <= order(last) < order(steps[reached + 1])
            for last in sent
            if last is not None
        ), "the stream goes on after the last event that was seen"
        page.reload()
        ended(page, "Restored")
        expect(scrub(page)).to_have_attribute("max", str(STEPS))
        page.close()
