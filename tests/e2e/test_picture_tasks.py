"""Picture tasks over REST: any upload, unchanged known pixels, an uploaded kernel, reproducible
results.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image, ImageOps

from aps_cli.main import main
from tests.stack import Stack, png

QUICK = {"steps": 2, "inner_steps": 2}


def photograph(kind: str, width: int = 53, height: int = 37) -> bytes:
    """A photograph as produced by phones and cameras."""
    image, out = Image.open(io.BytesIO(png(width, height))), io.BytesIO()
    match kind:
        case "phone":
            exif = Image.Exif()
            exif[0x0112] = 6  # portrait format: rotated by the viewer
            image.save(out, "JPEG", quality=90, exif=exif)
        case "grey":
            image.convert("L").save(out, "PNG")
        case "16-bit":
            Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257).save(out, "PNG")
        case "alpha":
            image.putalpha(
                Image.linear_gradient("L")
                .resize(image.size)
                .point(lambda value: 255 if value > 90 else 0)
            )
            image.save(out, "PNG")
    return out.getvalue()


def upright(data: bytes) -> np.ndarray:
    """8-bit colours as a viewer displays them."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if image.mode == "I;16":
        image = Image.fromarray((np.asarray(image) / 257).round().astype(np.uint8))
    return np.asarray(image.convert("RGB"))


def hole(width: int, height: int) -> bytes:
    mask, out = Image.new("L", (width, height), 255), io.BytesIO()
    mask.paste(0, (width // 4, height // 4, width // 2, height // 2))
    mask.save(out, "PNG")
    return out.getvalue()


def done(stack: Stack, task: str, files: dict[str, bytes], **spec: Any) -> dict[str, Any]:
    answer = stack.http.post(
        f"/v1/{task}", files=files, data={"spec": json.dumps({"sampler": QUICK, **spec})}
    )
    assert answer.status_code == 202, answer.text
    job = stack.wait(answer.json()["id"])
    assert job["state"] == "succeeded", job
    return job


def result(stack: Stack, job: dict[str, Any]) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(stack.artifact(job["id"], "result.png"))))


@pytest.mark.parametrize("kind", ["phone", "grey", "16-bit", "alpha"])
def test_any_photograph_is_edited_and_keeps_its_known_pixels(stack: Stack, kind: str) -> None:
    photo = photograph(kind)
    before = upright(photo)
    height, width = before.shape[:2]
    if kind == "alpha":
        files, known = (
            {"image": photo},
            np.asarray(Image.open(io.BytesIO(photo)).getchannel("A")) >= 128,
        )
    else:
        files = {"image": photo, "mask": hole(width, height)}
        known = np.asarray(Image.open(io.BytesIO(files["mask"]))) >= 128
    after = result(stack, done(stack, "edit", files, prompt="a red flower"))
    assert np.array_equal(after[known], before[known])
    assert not np.array_equal(after[~known], before[~known])


@pytest.mark.parametrize("kind", ["phone", "grey", "16-bit", "alpha"])
def test_any_photograph_gives_style_and_content(stack: Stack, kind: str) -> None:
    photo = photograph(kind)
    job = done(stack, "stylize", {"style": photo, "image": photo}, prompt="a red flower")
    assert result(stack, job).shape == upright(photo).shape
    distances = [
        data["misfit"] for _, type_, data in stack.events(job["id"]) if type_ == "progress"
    ]
    assert len(distances) == QUICK["steps"], "the style distance is told after every step"
    sidecar = json.loads(stack.artifact(job["id"], "result.json"))
    assert sidecar["misfit_curve"] == distances
    assert sidecar["digital_source_type"].endswith("/trainedAlgorithmicMedia")


@pytest.mark.parametrize(
    ("task", "spec", "files"),
    [
        (
            "edit",
            {"prompt": "a red flower", "right": 9, "num_samples": 2},
            {"image": photograph("phone"), "mask": hole(37, 53)},
        ),
        (
            "stylize",
            {"prompt": "a red flower", "seed": 5},
            {"image": photograph("grey"), "style": png()},
        ),
        ("generate", {"prompt": "a red flower", "width": 24, "height": 40}, {}),
    ],
)
def test_the_sidecar_reproduces_the_same_bytes(
    stack: Stack, tmp_path: Path, task: str, spec: dict[str, Any], files: dict[str, bytes]
) -> None:
    if files:
        job = done(stack, task, files, **spec)
    else:
        job = stack.wait(
            stack.http.post(f"/v1/{task}", json={**spec, "sampler": {"steps": 2}}).json()["id"]
        )
    paths = [tmp_path / name for name in files]
    for path in paths:
        path.write_bytes(files[path.name])
    (tmp_path / "sidecar.json").write_bytes(stack.artifact(job["id"], "result.json"))
    replayed = CliRunner().invoke(
        main,
        ["replay", str(tmp_path / "sidecar.json"), *map(str, paths), "-o", str(tmp_path / "again")],
    )
    assert replayed.exit_code == 0, replayed.output
    names = {artifact["name"] for artifact in job["artifacts"]} - {"result.json"}
    assert "result.png" in names
    for name in names & {path.name for path in (tmp_path / "again").iterdir()}:
        assert (tmp_path / "again" / name).read_bytes() == stack.artifact(job["id"], name), name


@pytest.mark.parametrize(
    ("task", "files", "spec", "words"),
    [
        (
            "edit",
            {"image": png(), "mask": hole(63, 64)},
            {"prompt": "x"},
            "must have the same size",
        ),
        ("edit", {"image": png()}, {"prompt": "x"}, "No part to regenerate is marked"),
        ("edit", {"image": png(), "mask": hole(64, 64)}, {"prompt": "  "}, "prompt"),
        (
            "edit",
            {"image": png(), "mask": hole(64, 64)},
            {"prompt": "a flower " * 50},
            "reads at most 30",
        ),
        (
            "edit",
            {"image": png(), "mask": hole(64, 64)},
            {"prompt": "x", "num_samples": 17},
            "num_samples",
        ),
        ("stylize", {"image": png()}, {"prompt": "x"}, "'style' is missing"),
        ("stylize", {"style": png(8, 8)}, {"prompt": "x"}, "16 on each side"),
        ("stylize", {"style": png()}, {"prompt": ""}, "prompt"),
        ("guide", {}, {"prompt": "why? " * 300}, "reads at most 77"),
    ],
)
def test_invalid_input_is_rejected_at_submission(
    stack: Stack, task: str, files: dict[str, bytes], spec: dict[str, Any], words: str
) -> None:
    if files:
        answer = stack.http.post(f"/v1/{task}", files=files, data={"spec": json.dumps(spec)})
    else:
        answer = stack.http.post(f"/v1/{task}", json=spec)
    assert answer.status_code in (400, 422), answer.text
    assert words in answer.text


@pytest.mark.parametrize(
    ("level", "words"), [(0, "covers the whole picture"), (255, "covers nothing")]
)
@pytest.mark.parametrize(
    ("task", "spec"),
    [
        ("edit", {"prompt": "x"}),
        ("restore", {"operator": {"type": "inpainting", "mask": "upload"}}),
    ],
)
def test_a_uniform_mask_is_rejected_at_submission(
    stack: Stack, task: str, spec: dict[str, Any], level: int, words: str
) -> None:
    mask = io.BytesIO()
    Image.new("L", (64, 64), level).save(mask, "PNG")
    answer = stack.http.post(
        f"/v1/{task}",
        files={"image": png(), "mask": mask.getvalue()},
        data={"spec": json.dumps(spec)},
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_spec")
    assert words in answer.json()["detail"]


def test_an_uploaded_kernel_is_used_at_the_working_size(stack: Stack) -> None:
    kernel, out = np.zeros((9, 5), dtype=np.uint8), io.BytesIO()
    kernel[:, 2] = 255
    Image.fromarray(kernel).save(out, "PNG")
    operator = {"type": "kernel_blur"}
    files = {"image": png(96, 80), "kernel": out.getvalue()}
    job = done(stack, "restore", files, operator=operator, working_size=48)
    sidecar = json.loads(stack.artifact(job["id"], "result.json"))
    assert sidecar["spec"]["operator"] == {**operator, "kernel": "upload"}
    assert set(sidecar["origin"]["inputs"]) == {"image", "kernel"}
    assert "a kernel of 3x5 pixels" in "".join(sidecar["notes"])
    refused = stack.http.post(
        "/v1/restore",
        files={"image": png(96, 80)},
        data={"spec": json.dumps({"operator": operator})},
    )
    assert refused.status_code == 422
    assert "needs a kernel" in refused.json()["detail"]
