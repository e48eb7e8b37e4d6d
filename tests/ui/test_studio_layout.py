"""Layout of forms, jobs and history at five widths (``widths.py``); the other tests of the studio
check the views that they lead to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.stack import Stack, png
from tests.ui.pages import SLOW, choose, ended, findings, submit, task
from tests.ui.widths import HEIGHTS, too_wide


@pytest.fixture
def shown(page: Page) -> Iterator[Any]:
    """Checks the state that ``page`` shows at every width, and collects what is wrong."""
    wrong: list[str] = []
    yield lambda name: wrong.extend(too_wide(page, name))
    assert wrong == []


def test_forms_fit_every_width(page: Page, stack: Stack, shown: Any) -> None:
    shown("restore-empty")
    for name in ("Stylize", "Edit", "Guide text", "Generate"):
        task(page, name)
        shown(f"{name}-empty")
        for summary in page.locator("summary:visible").all():
            summary.click()
        shown(f"{name}-unfolded")
    task(page, "Edit")
    page.get_by_role("button", name="Raccoon").click()
    expect(page.get_by_role("application")).to_be_visible()
    shown("edit-mask")
    task(page, "Restore")
    choose(page, png(500, 340), "a-photograph-with-quite-a-long-name-from-a-phone-20260712.png")
    page.get_by_text("Noise only", exact=True).click()
    expect(page.get_by_text("is first reduced to 256 × 174 pixels")).to_be_visible()
    expect(page.get_by_role("button", name="Keep full size")).to_be_visible()
    expect(page.get_by_text("Looking at the picture")).to_be_hidden()  # the page has settled
    shown("restore-reduced")
    page.get_by_role("button", name="Crop instead").click()
    shown("restore-crop")
    page.get_by_role("button", name="Cancel").click()
    for chip in page.locator(".settings .chip:has([type=radio]):visible").all():
        chip.click()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for summary in page.locator("summary:visible").all():
        summary.click()
    shown("restore-unfolded")
    page.get_by_text("Demo: degrade a clean picture").click()
    page.get_by_role("button", name="Raccoon, to reduce").click()
    expect(page.get_by_text("computed on this page")).to_be_visible()
    shown("restore-demo")


def test_jobs_fit_every_width(page: Page, stack: Stack, shown: Any) -> None:
    slow = stack.submit(png(96, 64), sampler={"steps": 40, "inner_steps": 60})
    waiting = stack.submit(png(64, 64), num_samples=3, sampler={"steps": 4, "inner_steps": 2})
    text = stack.http.post(
        "/v1/guide",
        json={
            "prompt": "Why is the sky blue?",
            "compare_unguided": True,
            "sampler": {"steps": 4, "max_new_tokens": 8},
        },
    ).json()
    generated = stack.http.post(
        "/v1/generate", json={"prompt": "a red flower", "sampler": {"steps": 2}}
    ).json()
    failed = stack.http.post(
        "/v1/restore",
        files={"image": png(64, 64)},
        data={"spec": '{"operator": {"type": "denoise"}}'},
        headers={"Cancel-After": "1s"},
    ).json()
    page.goto(f"/#{waiting['id']}")
    expect(page.get_by_text(re.compile("Next in line|ahead"))).to_be_visible()
    shown("job-waiting")
    page.goto(f"/#{slow['id']}")
    expect(page.get_by_text(re.compile(r"Step \d+ of 40")).first).to_be_visible(timeout=SLOW)
    shown("job-running")
    assert findings(page) == []
    stack.wait(failed["id"])
    page.goto(f"/#{failed['id']}")
    ended(page, "Failed")
    shown("job-failed")
    assert findings(page) == []
    page.goto(f"/#{slow['id']}")
    page.get_by_role("button", name="Cancel").click()
    ended(page, "Canceled")
    shown("job-canceled")
    stack.wait(generated["id"])
    page.goto(f"/#{generated['id']}")
    ended(page, "Generated")
    shown("job-Generated")
    for job, title in ((waiting, "Restored"), (text, "Answered")):
        stack.wait(job["id"])
        page.goto(f"/#{job['id']}")
        ended(page, title)
        shown(f"job-{title}")
        page.get_by_text("Use it in code").click()
        for kind in ("curl", "Python", "Command line"):
            page.locator(".code").get_by_text(kind, exact=True).click()
            shown(f"job-{title}-{kind}")
    page.goto("/#history")
    expect(page.get_by_role("listitem").first).to_be_visible()
    shown("history")
    page.get_by_label("Prompt or id").fill("nothing like this")
    expect(page.get_by_text("No job matches.")).to_be_visible()
    shown("history-empty")
    page.get_by_role("button", name=re.compile("worker")).click()
    expect(page.get_by_role("dialog", name="This service")).to_be_visible()
    shown("service")


def test_an_error_fits_every_width(page: Page, shown: Any, complaints: list[str]) -> None:
    choose(page, png(900, 700), "panorama.png")
    page.get_by_text("More settings").click()
    page.get_by_label("Longest side of the result").fill("900")
    page.get_by_text("Noise only", exact=True).click()
    page.get_by_role("button", name="Restore", exact=True).click()
    expect(page.get_by_role("alert")).to_be_visible()
    shown("refused")
    page.route("**/v1/capabilities", lambda route: route.abort())
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    shown("unreachable")
    page.unroute("**/v1/capabilities")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Restore a picture")).to_be_visible()
    complaints.clear()


@pytest.mark.parametrize("width", [360, 390])
def test_progress_is_above_the_fold_of_a_phone(page: Page, stack: Stack, width: int) -> None:
    page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
    choose(page, png(64, 64))
    page.get_by_text("Noise only", exact=True).click()
    submit(page)
    for element in (page.get_by_role("progressbar"), page.get_by_role("button", name="Cancel")):
        box = element.bounding_box()
        assert box is not None
        assert 0 < box["y"] < HEIGHTS[width] - box["height"]
    page.get_by_role("button", name="Cancel").click()
    ended(page, "Canceled")
