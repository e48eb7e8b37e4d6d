"""Fixtures for tests of the studio in a real browser with the running service."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

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
