"""One pipeline: the library, the command line and a job restore an upload alike."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image, ImageFilter

import aps_core as aps
from aps_cli.main import main
from aps_core.engines.engine import ImageEngine
from tests.engines import image_engine
from tests.stack import Stack

EXAMPLES = Path(__file__).parents[2] / "examples"
PRIOR = "embedded"
FEW: dict[str, Any] = {"type": "carried_evidence", "steps": 2, "inner_steps": 2}
BLUR = {"type": "gaussian_blur", "sigma": 1.2}


def crop(name: str, side: int = 48) -> Image.Image:
    return Image.open(EXAMPLES / name).convert("RGB").crop((90, 90, 90 + side, 90 + side))


def soft(image: Image.Image, radius: float = 1.2) -> Image.Image:
    """Blurred, with noise of three grey levels."""
    noise = np.random.default_rng(0).normal(0, 3, (image.height, image.width, 3))
    values = np.asarray(image.filter(ImageFilter.GaussianBlur(radius))) + noise
    return Image.fromarray(values.round().clip(0, 255).astype(np.uint8))


def with_holes(image: Image.Image) -> Image.Image:
    """With transparent pixels."""
    known = np.random.default_rng(1).random((image.height, image.width)) > 0.3
    image.putalpha(Image.fromarray(known.astype(np.uint8) * 255))
    return image


class Case(NamedTuple):
    """An upload, and how it is restored."""

    make: Callable[[], Image.Image]
    fields: dict[str, Any]
    suffix: str = ".png"
    notes: tuple[str, ...] = ()
    """Beginnings of its notes, in order."""


CASES = {
    "png": Case(lambda: soft(crop("photos/chelsea.png")), {"operator": BLUR}),
    "jpeg": Case(
        lambda: soft(crop("photos/chelsea.png")),
        {"operator": BLUR},
        ".jpg",
        ("The upload is a JPEG of quality 60",),
    ),
    "transparent": Case(
        lambda: with_holes(crop("photos/chelsea.png")),
        {"operator": {"type": "inpainting"}, "sigma": 0.03},
    ),
    "ignored transparency": Case(
        lambda: with_holes(crop("photos/chelsea.png")),
        {"operator": {"type": "denoise"}},
        notes=("The upload's transparency was ignored",),
    ),
    "page": Case(
        lambda: soft(crop("documents/page-comfortaa.png", 64), 1.0),
        {"operator": {"type": "gaussian_blur", "sigma": 1.0}},
        notes=("This seems to be a page or screen",),
    ),
    "reduced": Case(
        lambda: soft(crop("photos/chelsea.png", 80)),
        {"operator": BLUR, "working_size": 48},
        notes=("The upload was reduced to 48x48 pixels",),
    ),
    "samples": Case(
        lambda: soft(crop("photos/chelsea.png")), {"operator": BLUR, "num_samples": 2, "seed": 5}
    ),
    "tiles": Case(
        lambda: soft(crop("photos/chelsea.png", 112)),
        {"operator": BLUR, "tile": 96},
        notes=("Restored in 4 overlapping tiles",),
    ),
    "auto": Case(
        lambda: soft(crop("photos/chelsea.png", 64), 2.0),
        {"operator": {"type": "auto"}},
        notes=("Soft: a Gaussian blur",),
    ),
    "wide blur": Case(
        lambda: soft(crop("photos/coffee.png", 128), 5.0),
        {"operator": {"type": "auto"}},
        notes=("Soft: a Gaussian blur", "Restored at a reduced size", "The upload was reduced"),
    ),
}


class Outcome(NamedTuple):
    """What a caller sees of a restoration."""

    pixels: list[bytes]
    sigma: float
    operator: str
    notes: list[str]
    verdict: dict[str, Any]
    found: dict[str, Any] | None
    text_notice: str


def in_library(engine: ImageEngine, path: Path, fields: dict[str, Any]) -> Outcome:
    fields = dict(fields)
    measurement = aps.Measurement(path, fields.pop("operator"), fields.pop("sigma", "auto"))
    fields["samples"] = fields.pop("num_samples", 1)
    made = aps.restore(measurement, engine, sampler=FEW, **fields)
    assert made.fit is not None
    return Outcome(
        [image.tobytes() for image in made.images],
        float(made.sigma),
        made.fit.text,
        made.notes,
        made.fit.model_dump(mode="json"),
        None if made.found is None else made.found.model_dump(mode="json"),
        made.text_notice,
    )


def outcome(sidecar: dict[str, Any], pictures: list[bytes]) -> Outcome:
    """From the files of a command or a job."""
    return Outcome(
        [Image.open(io.BytesIO(data)).convert("RGB").tobytes() for data in pictures],
        sidecar["spec"]["sigma"],
        sidecar["fit"]["text"],
        sidecar["notes"],
        sidecar["fit"],
        sidecar["found"],
        sidecar["text_notice"],
    )


def on_command_line(path: Path, spec: dict[str, Any], folder: Path) -> Outcome:
    fields = {name: value for name, value in spec.items() if not isinstance(value, dict)}
    operator, sampler = dict(spec["operator"]), dict(spec["sampler"])
    fields |= {"operator": operator.pop("type"), "sampler": sampler.pop("type"), **sampler}
    if "sigma" in operator:
        fields["blur_sigma"] = operator["sigma"]
    options = [
        word
        for name, value in fields.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    done = CliRunner().invoke(
        main, ["restore", str(path), "-o", str(folder / "made.png"), *options]
    )
    assert done.exit_code == 0, done.output
    made = sorted(folder.glob("made-sample-*.png")) or [folder / "made.png"]
    sidecar = json.loads((folder / "made.json").read_text())
    return outcome(sidecar, [file.read_bytes() for file in made])


def as_a_job(stack: Stack, path: Path, spec: dict[str, Any]) -> Outcome:
    answer = stack.http.post(
        "/v1/restore", files={"image": path.read_bytes()}, data={"spec": json.dumps(spec)}
    )
    assert answer.status_code == 202, answer.text
    job = stack.wait(answer.json()["id"])
    assert job["state"] == "succeeded", job
    names = sorted(each["name"] for each in job["artifacts"])
    made = [name for name in names if name.startswith("sample-")] or ["result.png"]
    sidecar = json.loads(stack.artifact(job["id"], "result.json"))
    return outcome(sidecar, [stack.artifact(job["id"], name) for name in made])


@pytest.fixture(scope="module")
def engine() -> ImageEngine:
    return image_engine(PRIOR)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_upload_is_restored_alike_everywhere(
    stack: Stack, engine: ImageEngine, tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    path = tmp_path / f"upload{case.suffix}"
    case.make().save(path, quality=60)  # of JPEGs; others ignore it
    spec = {"prior": PRIOR, "sampler": FEW, **case.fields}
    library = in_library(engine, path, case.fields)
    command = on_command_line(path, spec, tmp_path)
    job = as_a_job(stack, path, spec)
    for field in Outcome._fields:
        assert getattr(library, field) == getattr(command, field) == getattr(job, field), field
    assert len(library.notes) >= len(case.notes)
    for note, beginning in zip(library.notes, case.notes, strict=False):
        assert note.startswith(beginning)
    assert len(library.pixels) == case.fields.get("num_samples", 1)
