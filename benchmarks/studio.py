"""Performance of the studio in Chromium: first paint, layout shift, interactions, page size.

    python -m benchmarks.studio http://127.0.0.1:8000 [--out FILE]

Measures the page of a running service as it is, and again with the processor slowed down fourfold,
as Lighthouse does for phones. Layout shift is what moves without the user's doing, in Chromium's
unit, on the form, during a real job of 64 pixels, and in the history. An interaction is a click or
a key; its time ends with the next painted frame, and those below 16 ms count as 16. The job behind
the slider over the steps is synthetic (``benchmarks/studio_job.py``).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
from pathlib import Path
from statistics import quantiles
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from benchmarks.studio_job import STEPS, synthesise

PHOTO = Path(__file__).parents[1] / "examples" / "photos" / "coffee.png"
PATIENCE = 180_000.0
"""Milliseconds to wait for a job."""
SLOWDOWNS = (1, 4)
THEME = "Switch to the"
"""Begins the name of the button that repaints everything."""
MODES = ("Hidden", "Decided so far", "Heat by step", "Heat by confidence")
SCRUB = """(slider) => Array.from({ length: 200 }, (_, index) => {
    slider.value = 1 + (index * 7) % Number(slider.max);
    const started = performance.now();
    slider.dispatchEvent(new Event("input"));
    return performance.now() - started;
})"""
OBSERVE = """(() => {
    window.seen = { shifts: [], interactions: [], largest: 0, blocked: 0 };
    const observe = (type, each, options) => new PerformanceObserver((list) =>
        list.getEntries().forEach(each)).observe({ type, buffered: true, ...options });
    const named = (node) => node?.nodeType === 1
        ? `${node.tagName.toLowerCase()}.${node.getAttribute("class")}` : `text ${node?.data}`;
    const at = ({ x, y }) => `${x},${y}`;
    const moved = ({ node, previousRect, currentRect }) =>
        `${named(node)} from ${at(previousRect)} to ${at(currentRect)}`;
    observe("layout-shift", ({ value, hadRecentInput, sources }) => hadRecentInput
        || seen.shifts.push([value, sources.map(moved).join("; ")]));
    observe("largest-contentful-paint", ({ startTime }) => { seen.largest = startTime; });
    observe("longtask", ({ duration }) => { seen.blocked += duration - 50; });
    const targets = new Map();  // an entry has none once its element has left the page
    const words = (node) => (node.ariaLabel ?? node.textContent.trim() ?? "").slice(0, 40);
    for (const kind of ["pointerdown", "pointerup", "click", "keydown", "keyup"])
        addEventListener(kind, ({ timeStamp, target }) => targets.set(Math.round(timeStamp),
            words(target.closest?.("button") ?? target)), { capture: true });
    observe("event", ({ interactionId, duration, name, startTime, processingStart,
            processingEnd }) => interactionId && seen.interactions.push([duration,
            `${name} on ${targets.get(Math.round(startTime))}`, processingStart - startTime,
            processingEnd - processingStart]),
        { durationThreshold: 16 });
})()"""


def watched(browser: Browser, url: str, slowdown: int) -> Page:
    """A page whose shifts, paints and interactions are recorded in ``window.seen``."""
    page = browser.new_page(base_url=url, viewport={"width": 1280, "height": 900})
    page.add_init_script(OBSERVE)
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": slowdown})
    return page


def seen(page: Page) -> dict[str, Any]:
    """What was recorded since the page was loaded."""
    page.wait_for_timeout(300)  # entries arrive after the frame
    found: dict[str, Any] = page.evaluate("window.seen")
    return found


def shift(page: Page) -> float:
    """Sum of all layout shifts since the page was loaded; Chromium's own score is at most this."""
    return float(sum(value for value, _ in seen(page)["shifts"]))


def loaded(page: Page) -> dict[str, float]:
    """First contentful paint in ms, and uncompressed size of the page without pictures in kB."""
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    entries = page.evaluate(
        "performance.getEntries().filter(({ decodedBodySize }) => decodedBodySize).map(({ name,"
        " decodedBodySize }) => [name, decodedBodySize])"
    )
    weight = sum(
        size for name, size in entries if "/v1/" not in name and not name.endswith((".png", ".jpg"))
    )
    return {"first_contentful_paint_ms": paint, "weight_kb": weight / 1000}


def used(page: Page) -> dict[str, float]:
    """Layout shift of the views and the slowest interactions in ms, from a new form to a finished
    job and back to the list of jobs. The page comes from :func:`watched`.
    """
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.wait_for_load_state("networkidle")
    found = {"largest_contentful_paint_ms": seen(page)["largest"]}
    found["blocked_while_loading_ms"] = seen(page)["blocked"]
    found["layout_shift, empty form"] = shift(page)
    _fill_in(page)
    found["layout_shift, form filled in"] = shift(page)
    page.get_by_role("button", name="Restore", exact=True).click()
    over = page.get_by_role("heading", name=re.compile("^(Restored|Finished|Does not agree)"))
    expect(over).to_be_visible(timeout=PATIENCE)
    page.wait_for_load_state("networkidle")
    found["layout_shift, job from start to end"] = shift(page)
    _look_at_the_result(page)
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("listitem").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    found["layout_shift, with history"] = shift(page)
    took = {True: [16.0], False: [16.0]}
    for milliseconds, what, *_ in seen(page)["interactions"]:
        took[THEME in what].append(milliseconds)
    found["theme_switch_ms"] = max(took[True])
    found["slowest_other_interaction_ms"] = max(took[False])
    return found


def _fill_in(page: Page) -> None:
    """Chooses a picture of 64 pixels and clicks through the form."""
    buffer = io.BytesIO()
    with Image.open(PHOTO) as photo:
        photo.convert("RGB").resize((64, 64)).save(buffer, "PNG")
    with page.expect_file_chooser() as chooser:
        page.get_by_text("Drop, paste or choose pictures").click()
    chooser.value.set_files(
        {"name": "coffee.png", "mimeType": "image/png", "buffer": buffer.getvalue()}
    )
    expect(page.get_by_role("region", name="Diagnosis").get_by_role("status")).to_have_text(
        re.compile("[.]$")
    )
    for kind in ("inpainting", "compose", "gaussian_blur", "denoise"):
        page.locator(f".chip:has([value={kind}])").first.click()
    page.locator(".chip:has([value=fast])").click()
    expect(page.locator(".forecast-line")).to_have_text(re.compile("^Result .* about"))
    for summary in page.locator("summary:visible").all():
        summary.click()
    page.locator('[data-pointer="/sampler/steps"]:visible').fill("8")
    page.get_by_role("button", name=re.compile(f"^{THEME}")).click()
    page.get_by_role("button", name=re.compile("worker")).click()
    page.keyboard.press("Escape")


def _look_at_the_result(page: Page) -> None:
    """Uses the controls below a result."""
    page.get_by_label("Tokens").select_option("Heat by confidence")
    page.get_by_role("slider", name="Step", exact=True).press("ArrowLeft")
    page.get_by_role("slider", name=re.compile("^Comparison")).press("ArrowRight")
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_text("Use it in code").click()


def scrubbed(page: Page) -> dict[str, float]:
    """95th percentile of the slider's handler in ms per token display mode, with cached frames."""
    page.goto(synthesise(page))
    slider = page.get_by_role("slider", name="Step", exact=True)
    expect(slider).to_have_attribute("max", str(STEPS))
    page.wait_for_load_state("networkidle")
    found = {}
    for mode in MODES:
        page.get_by_label("Tokens").select_option(mode)
        found[f"scrub_p95_ms, {mode.lower()}"] = quantiles(slider.evaluate(SCRUB), n=20)[-1]
    return found


def main() -> None:
    """Measures the page and prints the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000")
    parser.add_argument("--out", type=Path, help="also write the numbers to this JSON file")
    asked = parser.parse_args()
    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for slowdown in SLOWDOWNS:
            page = watched(browser, asked.url, slowdown)
            numbers = {**loaded(page), **used(page), **scrubbed(page)}
            found[f"slowed down {slowdown} times"] = numbers
            for name, value in numbers.items():
                print(f"{slowdown}x {name:42} {value:9.4g}")
            page.close()
        about = {"chromium": browser.version, "load_average": os.getloadavg()[0]}
        browser.close()
    if asked.out:
        asked.out.write_text(json.dumps({**about, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
