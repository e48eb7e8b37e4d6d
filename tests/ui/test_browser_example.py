"""The browser example in a real browser: submit, previews, result, cancel, a bad file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from service.launch.processes import free_port
from tests.stack import Stack, png

CHROMIUM = shutil.which("chromium")
ROOT = Path(__file__).parents[2]
SLOWLY = """
const stringify = JSON.stringify;
JSON.stringify = (spec) => stringify({ ...spec, prior: "embedded" });
"""
"""Names a prior whose jobs take long enough to be watched and canceled."""
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and "APS_REQUIRE_BROWSER" not in os.environ, reason="chromium is not installed"
)


@pytest.fixture(scope="module")
def site(running_stack: Stack) -> Iterator[str]:
    """The example's own server, in front of the service."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "examples/browser/server.py", str(port)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "APS_SERVER": running_stack.url},
        stderr=subprocess.DEVNULL,
    ) as server:
        deadline = time.monotonic() + 30
        while True:
            try:
                httpx.get(url).raise_for_status()
                break
            except httpx.TransportError:
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield url
        server.kill()


@pytest.fixture
def page(stack: Stack, site: str) -> Iterator[Page]:
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(base_url=site)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.add_init_script(SLOWLY)
        page.goto("/")
        yield page
        browser.close()
    assert complaints == []


def choose(page: Page, name: str, data: bytes) -> None:
    page.get_by_label("Photo").set_input_files(
        {"name": name, "mimeType": "image/png", "buffer": data}
    )
    page.get_by_role("button", name="Restore").click()


def test_a_photo_is_restored_with_previews(page: Page) -> None:
    seen = []
    page.on(
        "request", lambda request: seen.append(request.url) if "/previews/" in request.url else None
    )
    choose(page, "photo.png", png(32, 32))
    expect(page.get_by_role("status")).to_contain_text("Done", timeout=120_000)
    expect(page.get_by_role("img", name="Restored photo")).to_be_visible()
    assert (
        page.get_by_role("img").evaluate("image => image.decode().then(() => image.naturalWidth)")
        == 32
    )
    assert len(seen) > 3


def test_a_running_job_can_be_canceled(page: Page) -> None:
    choose(page, "photo.png", png(128, 128))
    expect(page.get_by_role("status")).to_contain_text("Step", timeout=120_000)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status")).to_contain_text("The job was canceled", timeout=120_000)


def test_a_file_that_is_no_picture_is_explained(page: Page) -> None:
    choose(page, "notes.png", b"hello")
    expect(page.get_by_role("status")).to_contain_text("not a picture", timeout=30_000)
