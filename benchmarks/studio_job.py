"""A synthetic job of the studio, answered in place of the service: 512 pixels in 40 steps, with the
token grid of the embedded prior. Computing such a job on a CPU takes long.
"""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Page, Route

SIZE, STRIDE, STEPS = 512, 4, 40
JOB = "01900000-0000-7000-8000-000000000001"


def synthesise(page: Page) -> str:
    """Answers requests of the page for the job; returns the job's address."""
    page.route(f"**/v1/jobs/{JOB}**", _answer)
    page.route(f"**/v1/jobs/{JOB}/**", _answer)
    return f"/#{JOB}"


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
