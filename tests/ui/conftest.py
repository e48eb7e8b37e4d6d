"""Fixtures for tests of the studio in a real browser with the running service."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from redis import Redis

from service.access.keys import KeyStore, new_key
from tests.apis import running_api
from tests.stack import Stack

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


expect.set_options(timeout=30_000)  # a busy machine needs more than the default of 5 s


@pytest.fixture(scope="module")  # its event loop must not outlive the tests of the page
def browser() -> Iterator[Browser]:
    """Chromium. If it is missing, tests are skipped, or fail if APS_REQUIRE_BROWSER is set."""
    if CHROMIUM is None and "APS_REQUIRE_BROWSER" not in os.environ:
        pytest.skip("the studio's tests drive chromium, which is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def complaints() -> list[str]:
    """Console errors, uncaught exceptions and content policy violations of the browser."""
    return []


@pytest.fixture
def page(browser: Browser, stack: Stack, complaints: list[str]) -> Iterator[Page]:
    """The opened studio. A test fails if it leaves browser errors in ``complaints``."""
    page = browser.new_page(base_url=stack.url, viewport={"width": 1280, "height": 900})
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto("/")
    expect(page.get_by_role("heading", name="Restore a picture")).to_be_visible()
    yield page
    page.close()
    assert complaints == []


@pytest.fixture
def token(running_stack: Stack) -> Iterator[str]:
    """An API key of a client called eve."""
    with Redis.from_url(running_stack.settings.redis_url) as redis:
        made, key = new_key("eve", frozenset({"read", "write"}))
        KeyStore(redis).add(key)
        yield made
        redis.delete("aps:apikeys")


@pytest.fixture
def guarded(stack: Stack, token: str, tmp_path: Path) -> Iterator[httpx.Client]:
    """An API that requires keys, served by the stack's worker."""
    with running_api(stack.settings, tmp_path / "log", auth="keys") as http:
        yield http
