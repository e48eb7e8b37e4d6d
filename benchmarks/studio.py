"""Performance of the studio in Chromium: first paint, page size, handler of the step slider.

    python -m benchmarks.studio http://127.0.0.1:8000

Measures the page of a running service. The job behind the slider is synthetic, because computing it
on a CPU takes long: a picture of 512 pixels in 40 steps, with the token grid of the embedded prior.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
from statistics import quantiles
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Page, Route, expect, sync_playwright

SIZE, STRIDE, STEPS = 512, 4, 40
JOB = "01900000-0000-7000-8000-000000000001"
MODES = ("Hidden", "Decided so far", "Heat by step", "Heat by confidence")
SCRUB = """(slider) => Array.from({ length: 200 }, (_, index) => {
    slider.value = 1 + (index * 7) % Number(slider.max);
    const started = performance.now();
    slider.dispatchEvent(new Event("input"));
    return performance.now() - started;
})"""


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


def scrubbed(page: Page) -> dict[str, float]:
    """95th percentile of the slider's handler in ms per token display mode, with cached frames."""
    page.route(f"**/v1/jobs/{JOB}**", _answer)
    page.route(f"**/v1/jobs/{JOB}/**", _answer)
    page.goto(f"/#{JOB}")
    slider = page.get_by_role("slider", name="Step", exact=True)
    expect(slider).to_have_attribute("max", str(STEPS))
    page.wait_for_load_state("networkidle")
    found = {}
    for mode in MODES:
        page.get_by_label("Tokens").select_option(mode)
        found[f"scrub_p95_ms, {mode.lower()}"] = quantiles(slider.evaluate(SCRUB), n=20)[-1]
    return found


def _answer(route: Route) -> None:
    """Serves the synthetic job, its events and its frames."""
    path = route.request.url.partition(JOB)[2]
    if path == "/events":
        kinds = [("progress", event) for event in _events()] + [("done", {"job": _job()})]
        body = "".join(
            f"id: {number}-0\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
            for number, (kind, data) in enumerate(kinds, 1)
        )
        route.fulfill(content_type="text/event-stream", body=body)
    elif path:
        route.fulfill(
            content_type="image/jpeg", body=_frame(path), headers={"Cache-Control": "max-age=600"}
        )
    else:
        route.fulfill(json=_job())


def _events() -> list[dict[str, Any]]:
    rng, side = np.random.default_rng(0), SIZE // STRIDE
    decided = np.array_split(rng.permutation(side * side), STEPS)
    common = {
        "total": STEPS,
        "seconds": 1.0,
        "prior_seconds": 0.1,
        "noise_floor": 0.05,
        "grid": [side, side],
        "preview": True,
    }
    return [
        {
            **common,
            "step": step,
            "misfit": 0.05 + 1 / step,
            "anchors": anchors.tolist(),
            "confidence": rng.normal(step, 1, len(anchors)).round(3).tolist(),
            "loss_curve": (1 / np.arange(1, 101)).round(4).tolist(),
            "preview_url": f"/v1/jobs/{JOB}/previews/{step}",
        }
        for step, anchors in enumerate(decided, 1)
    ]


def _frame(path: str) -> bytes:
    """Creates a noisy picture, seeded by the path."""
    buffer = io.BytesIO()
    noise = np.random.default_rng(sum(path.encode())).integers(
        0, 256, (SIZE // 8, SIZE // 8, 3), np.uint8
    )
    Image.fromarray(noise).resize((SIZE, SIZE), Image.Resampling.BICUBIC).save(
        buffer, "JPEG", quality=80
    )
    return buffer.getvalue()


def _job() -> dict[str, Any]:
    url, when = f"/v1/jobs/{JOB}", "2030-01-01T00:00:00Z"
    files = [
        {"name": name, "url": f"{url}/artifacts/{name}", "media_type": "image/png"}
        for name in ("measurement.png", "result.png", "result.json")
    ]
    urls = {"self": url, "events": f"{url}/events", "cancel": f"{url}/cancel"}
    state = {
        "state": "succeeded",
        "phase": None,
        "error": None,
        "progress": None,
        "cancel_requested": False,
        "expires_at": when,
        "created_at": when,
    }
    spec = {
        "type": "restore",
        "prior": "embedded",
        "operator": {"type": "denoise"},
        "seed": 0,
        "sampler": {"steps": STEPS, "inner_steps": 100},
    }
    size = [SIZE, SIZE]
    return {
        "id": JOB,
        "task": "restore",
        **state,
        "image_size": size,
        "output_size": size,
        "spec": spec,
        "artifacts": files,
        "metrics": {},
        "urls": urls,
    }


def main() -> None:
    """Measures the page and prints the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(
            base_url=parser.parse_args().url, viewport={"width": 1280, "height": 900}
        )
        for name, value in {**loaded(page), **scrubbed(page)}.items():
            print(f"{name:42} {value:8.1f}")
        browser.close()


if __name__ == "__main__":
    main()
