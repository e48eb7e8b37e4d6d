"""Common actions on the studio's pages."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from playwright.sync_api import Locator, Page, expect

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()

SLOW = 150_000
"""Timeout in ms of a small job on a busy machine."""


def choose(
    page: Page, image: bytes, name: str = "photo.png", slot: str = "Degraded picture"
) -> None:
    """Selects a file for one of the task's pictures and waits until it is displayed."""
    page.get_by_label(slot, exact=True).set_input_files(
        {"name": name, "mimeType": "image/png", "buffer": image}
    )
    expect(page.get_by_text(re.compile(rf"^{re.escape(name)}, \d+ × \d+ pixels"))).to_be_visible()


def sampler(page: Page, **settings: int) -> None:
    """Opens the sampler settings and fills in some of them."""
    page.get_by_text("Sampler", exact=True).click()
    for name, value in settings.items():
        page.locator(f'[data-pointer="/sampler/{name}"]:visible').fill(str(value))


def submit(page: Page, verb: str = "Restore") -> str:
    """Submits the form and returns the job's id."""
    page.get_by_role("button", name=verb, exact=True).click()
    expect(page.locator(".job, #alert:visible").first).to_be_visible(timeout=SLOW)
    expect(page.locator("#alert")).to_be_hidden()
    return page.url.partition("#")[2]


def task(page: Page, name: str) -> None:
    """Opens a task with its link."""
    page.get_by_role("navigation", name="Tasks").get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("link", name=name, exact=True)).to_have_attribute(
        "aria-current", "page"
    )


VERDICTS = re.compile("^(Restored|Finished: agreement undecided|Does not agree with your picture)$")
"""Headings of a finished restoration. Few steps reach no agreement."""


def ended(page: Page, title: str) -> None:
    """Waits until the job has ended; a restoration with any verdict."""
    shown = (
        page.get_by_role("heading", name=VERDICTS)
        if title == "Restored"
        else page.get_by_role("heading", name=title, exact=True)
    )
    expect(shown).to_be_visible(timeout=SLOW)


def scrub(page: Page) -> Locator:
    """The slider over the steps."""
    return page.get_by_role("slider", name="Step", exact=True)


def comparison(page: Page) -> Locator:
    """The slider between the two pictures."""
    return page.get_by_role("slider", name=re.compile("^Comparison"))


def downloaded(page: Page, link: str) -> bytes:
    """Content behind a download link."""
    with page.expect_download() as download:
        page.get_by_role("link", name=link, exact=True).click()
    return download.value.path().read_bytes()


def colours(page: Page) -> list[list[int]]:
    """Pixels of the token overlay as RGBA, one per token."""
    flat: list[int] = page.locator(".tokens").evaluate("""({ width, height }) => {
            const copy = new OffscreenCanvas(width, height).getContext("2d");
            copy.drawImage(document.querySelector(".tokens"), 0, 0);
            return [...copy.getImageData(0, 0, width, height).data];
        }""")
    return [flat[start : start + 4] for start in range(0, len(flat), 4)]


def findings(page: Page) -> list[str]:
    """All accessibility violations found by axe-core."""
    page.evaluate(AXE)
    violations: list[dict[str, Any]] = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{found['impact']}: {found['id']} at {found['nodes'][0]['html'][:120]}"
        for found in violations
    ]
