"""A real browser at the real service."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from stack import Stack

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; absent, the tests are skipped, or fail where APS_REQUIRE_BROWSER says that
    they must run.
    """
    if CHROMIUM is None and "APS_REQUIRE_BROWSER" not in os.environ:
        pytest.skip("the studio's tests drive chromium, which is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def complaints() -> list[str]:
    """What the browser complained about: errors on the console, uncaught exceptions, refusals by
    the content policy.
    """
    return []


@pytest.fixture
def page(browser: Browser, stack: Stack, complaints: list[str]) -> Iterator[Page]:
    """The studio, open and ready. A test that leaves complaints unexplained fails."""
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
