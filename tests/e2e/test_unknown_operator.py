"""'auto' through all real processes: the operator is unknown until the worker has the picture."""

from __future__ import annotations

import io
import json
from pathlib import Path

from PIL import Image, ImageFilter

from tests.stack import Stack

PHOTO = Path(__file__).parents[2] / "examples/photos/chelsea.png"
SPEC = {"operator": {"type": "auto"}, "sampler": {"steps": 2, "inner_steps": 2}}


def photo(blur: float) -> bytes:
    image = Image.open(PHOTO).convert("RGB").crop((90, 90, 154, 154))
    buffer = io.BytesIO()
    image.filter(ImageFilter.GaussianBlur(blur)).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_photo_is_restored_by_what_is_found_in_it(stack: Stack) -> None:
    asked = {"spec": SPEC, "image_size": [64, 64]}
    estimate = stack.http.post("/v1/restore/estimate", json=asked)
    assert estimate.json()["output_size"] == [64, 64]
    files, data = {"image": photo(2)}, {"spec": json.dumps(SPEC)}
    submitted = stack.http.post("/v1/restore", files=files, data=data)
    assert submitted.status_code == 202, submitted.text
    job = stack.wait(submitted.json()["id"])
    assert job["state"] == "succeeded", job
    found = job["metrics"]["found"]
    assert found["asked"] == job["spec"]["operator"]["type"] == "auto"
    assert found["operator"]["type"] == "gaussian_blur"
    assert found["text"] in job["metrics"]["notes"]
    sidecar = json.loads(stack.artifact(job["id"], "result.json"))
    assert sidecar["spec"]["operator"] == found["operator"]


def test_a_good_photo_is_left_alone(stack: Stack) -> None:
    files, data = {"image": photo(0)}, {"spec": json.dumps(SPEC)}
    submitted = stack.http.post("/v1/restore", files=files, data=data)
    job = stack.wait(submitted.json()["id"])
    assert job["state"] == "failed"
    assert job["error"]["code"] == "nothing_to_restore"
    assert "Nothing seems to be wrong" in job["error"]["detail"]
