"""Layout at five widths: nothing is wider than the window.

``APS_SCREENSHOTS=FOLDER`` also saves a picture of every view and state at each width, and one in
the dark theme.
"""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import Page, ViewportSize

HEIGHTS = {360: 740, 390: 844, 768: 1024, 1280: 800, 1920: 1080}
"""Height of the window by its width."""
DARK_WIDTH = 1280
FOLDER = os.environ.get("APS_SCREENSHOTS")
# elements that stick out of the window, except inside something that scrolls or clips on purpose
WIDER = """() => {
    const clipped = (each) => each.closest("pre, .tasks, .stage, .drop, .visually-hidden, .skip");
    const wide = [...document.querySelectorAll("body *")].filter((each) => {
        const { left, right, width } = each.getBoundingClientRect();
        return width > 1 && (right > innerWidth + 1 || left < -1) && !clipped(each);
    });
    return wide.map((each) => `${each.tagName}.${each.getAttribute("class")}`);
}"""


def too_wide(page: Page, name: str) -> list[str]:
    """What is wider than the window at any width in the state that ``page`` shows."""
    before, wrong = page.viewport_size, []
    for width, height in HEIGHTS.items():
        page.set_viewport_size(ViewportSize(width=width, height=height))
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        wrong += [f"{name} at {width}: {each}" for each in page.evaluate(WIDER)]
        if over > 0:
            wrong.append(f"{name} at {width}: the page is {over} px too wide")
        if FOLDER:
            page.screenshot(path=Path(FOLDER) / f"{name}-{width}.png", full_page=True)
            if width == DARK_WIDTH:
                page.emulate_media(color_scheme="dark")
                page.screenshot(path=Path(FOLDER) / f"{name}-dark.png", full_page=True)
                page.emulate_media(color_scheme="light")
    if before:
        page.set_viewport_size(before)
    return wrong
