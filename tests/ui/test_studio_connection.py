"""The studio without a connection to the service: what it says, keeps and does by itself."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.stack import Stack, png
from tests.ui.pages import SLOW


def test_a_running_job_without_a_connection_says_so_and_keeps_its_picture(
    page: Page, stack: Stack, complaints: list[str]
) -> None:
    long = {"type": "aps", "steps": 60, "inner_steps": 60, "inner": "fixed"}
    job = stack.submit(png(64, 64), sampler=long)
    page.goto(f"/#{job['id']}")
    estimate = page.get_by_role("img", name="Current estimate of the picture")
    expect(estimate).to_be_visible(timeout=SLOW)
    left = page.get_by_text(re.compile("^about .* left$"))
    expect(left).to_be_visible(timeout=SLOW)
    page.context.set_offline(True)
    expect(page.get_by_text("Connection lost; trying again…")).to_be_visible()
    expect(page.get_by_role("button", name="No connection")).to_be_visible()
    expect(left).to_be_hidden()
    kept = estimate.get_attribute("src")
    # the event stream, which this browser leaves open, names further pictures meanwhile
    step = int(page.locator(".running").inner_text().split()[1])
    expect(page.locator(".running")).to_contain_text(f"Step {step + 2} of 60", timeout=SLOW)
    assert estimate.evaluate("image => image.complete && image.naturalWidth") == 64
    assert estimate.get_attribute("src") == kept
    page.context.set_offline(False)
    expect(page.get_by_role("button", name="worker")).to_be_visible()
    expect(page.get_by_text(re.compile("of the tokens are decided"))).to_be_visible()
    expect(left).to_be_visible()
    expect(estimate).not_to_have_attribute("src", kept or "")
    assert all("ERR_INTERNET_DISCONNECTED" in text for text in complaints)
    complaints.clear()
    stack.http.post(job["urls"]["cancel"])


def test_a_form_without_a_connection_says_so(page: Page, complaints: list[str]) -> None:
    page.context.set_offline(True)
    expect(page.get_by_role("button", name="No connection")).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_role("button", name="1 worker ready")).to_be_visible()
    complaints.clear()


def test_labels_of_small_values_stay_inside_the_chart(page: Page) -> None:
    sides = page.evaluate(
        """async () => {
            const { chart } = await import("/chart.js");
            const figure = document.createElement("figure");
            figure.className = "chart";
            figure.append(chart({ name: "", values: [-0.00008, 0.00006, 0.000045], total: 3 }));
            figure.append(chart({ name: "", values: [0.00095], total: 1 }));
            document.querySelector("main").append(figure);
            const left = (element) => element.getBoundingClientRect().x;
            return [...figure.querySelectorAll("text")]
                .map((text) => left(text) - left(text.closest("svg")));
        }"""
    )
    assert min(sides) >= 0
