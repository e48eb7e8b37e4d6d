"""Takes the documentation's screenshots of the studio with Chromium: a diagnosed picture,
the demo, and a finished job.

aps serve --embedded
python scripts/make_studio_pictures.py http://127.0.0.1:8000
"""

from __future__ import annotations

import io
import re
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

DOCS = Path(__file__).parents[1] / "docs"
MINUTES = 60_000.0


def save(page: Page, name: str) -> None:
    """Saves a screenshot as ``docs/NAME.webp``."""
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(500)
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").save(DOCS / f"{name}.webp", quality=88, method=6)


def main(url: str) -> None:
    """Takes the screenshots; the job takes less than a minute on an idle CPU."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(base_url=url, viewport={"width": 1280, "height": 860})
        page.goto("/")
        page.get_by_role("button", name="Cat, out of focus").click()
        diagnosis = page.get_by_role("region", name="Diagnosis")
        expect(diagnosis.get_by_role("button", name="Restore what was found")).to_be_visible()
        expect(page.locator(".forecast-line")).to_have_text(re.compile("^Result .* about"))
        page.set_viewport_size({"width": 1280, "height": 1080})
        save(page, "studio-diagnosis")
        page.get_by_text("Demo: degrade a clean picture").click()
        page.get_by_role("button", name="Raccoon, to reduce").click()
        expect(page.get_by_text("computed on this page")).to_be_visible()
        page.set_viewport_size({"width": 1280, "height": 1330})
        expect(page.locator(".forecast-line")).to_have_text(re.compile("^Result .* about"))
        save(page, "studio-demo")
        page.get_by_role("button", name="Restore", exact=True).click()
        expect(page.get_by_role("heading", name="Restored", exact=True)).to_be_visible(
            timeout=15 * MINUTES
        )
        page.set_viewport_size({"width": 1280, "height": 1020})
        save(page, "studio-job")
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
