"""Photographs and documents get the prior trained on them, unless the request names a prior."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from aps_client import Client
from aps_core.tasks import RestoreSpec
from service.api.jobs.availability import computable, worker_for
from service.api.problems.errors import NoWorker, PriorNotLoaded
from service.jobs import WorkerInfo
from tests.apis import running_api
from tests.stack import Stack

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE, PHOTO = EXAMPLES / "documents/page-karla.png", EXAMPLES / "photos/coffee.png"
QUICK = {
    "operator": {"type": "denoise"},
    "sigma": 0.1,
    "working_size": 64,
    "preset": "fast",
}
ONE_STEP = {"steps": 1, "inner_steps": 1}


def submit(stack: Stack, picture: Path, key: str = "", **spec: Any) -> dict[str, Any]:
    answer = stack.http.post(
        "/v1/restore",
        files={"image": picture.read_bytes()},
        data={"spec": json.dumps({**QUICK, **spec})},
        headers={"Idempotency-Key": key} if key else {},
    )
    answer.raise_for_status()
    return answer.json()


@pytest.mark.parametrize(
    ("picture", "spec", "prior"),
    [
        (PAGE, {}, "embedded_documents"),
        (PHOTO, {}, "embedded_denoiser"),
        (PHOTO, {"operator": {"type": "jpeg"}}, "embedded_denoiser"),
        (PHOTO, {"operator": {"type": "auto"}}, "embedded_photographs"),
        (PHOTO, {"operator": {"type": "blind_blur"}}, "embedded_photographs"),
        (PHOTO, {"operator": {"type": "colorize"}}, "embedded"),  # the other knows no colours
        (PHOTO, {"prior": "embedded"}, "embedded"),
        (PHOTO, {"operator": {"type": "hdr"}}, "embedded_photographs"),
        (PAGE, {"operator": {"type": "jpeg"}}, "embedded_documents"),
        (PAGE, {"prior": "embedded"}, "embedded"),
        (PAGE, {"prompt": "a page"}, "embedded"),  # the documents prior takes no prompt
        (PAGE, {"sampler": {"type": "aps", **ONE_STEP}}, "embedded"),  # the paper's sampler
        (PHOTO, {"sampler": ONE_STEP}, "embedded"),
    ],
)
def test_the_prior_is_chosen_by_the_picture(
    stack: Stack, picture: Path, spec: dict[str, Any], prior: str
) -> None:
    assert submit(stack, picture, **spec)["prior"] == prior


def test_the_result_says_which_prior_was_used(stack: Stack) -> None:
    job = submit(stack, PAGE)
    with Client(stack.url) as client:
        sidecar = client.result(job["id"]).sidecar
    assert sidecar["spec"]["prior"] == "embedded_documents"
    assert "'embedded_documents' was trained on pages" in sidecar["notes"][-1]


def test_a_stored_page_is_looked_at_too_and_a_repeated_request_finds_its_job(stack: Stack) -> None:
    png = {"Content-Type": "image/png"}
    stored = stack.http.post("/v1/files", content=PAGE.read_bytes(), headers=png).json()
    asked = {**QUICK, "image": f"sha256:{stored['sha256']}"}
    key = {"Idempotency-Key": "a-stored-page"}
    first, again = (
        stack.http.post("/v1/restore", json=asked, headers=key).raise_for_status() for _ in range(2)
    )
    assert first.json()["prior"] == "embedded_documents"
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["Idempotent-Replayed"] == "true"


def test_a_small_part_is_judged_by_the_whole_page(stack: Stack) -> None:
    part = io.BytesIO()
    Image.open(PAGE).crop((0, 0, 12, 12)).save(part, "PNG")  # of the empty margin
    files = {"image": part.getvalue()}
    for more, prior in (
        ({}, "embedded_denoiser"),
        ({"whole": PAGE.read_bytes()}, "embedded_documents"),
    ):
        answer = stack.http.post(
            "/v1/restore", files={**files, **more}, data={"spec": json.dumps(QUICK)}
        )
        assert answer.raise_for_status().json()["prior"] == prior


def test_a_service_without_a_prior_for_documents_uses_the_default(
    stack: Stack, tmp_path: Path
) -> None:
    with running_api(stack.settings, tmp_path / "log", priors=["embedded"]) as http:
        answer = http.post(
            "/v1/restore", files={"image": PAGE.read_bytes()}, data={"spec": json.dumps(QUICK)}
        )
    assert answer.raise_for_status().json()["prior"] == "embedded"


def test_a_service_of_specialised_priors_only_serves_what_they_are_for(
    stack: Stack, tmp_path: Path
) -> None:
    offered = ["embedded_photographs", "embedded_documents"]

    def asked(picture: Path, **spec: Any) -> dict[str, Any]:
        form = {"spec": json.dumps({**QUICK, **spec})}
        files = {"image": picture.read_bytes()}
        return http.post("/v1/restore", files=files, data=form).json()

    with running_api(stack.settings, tmp_path / "log", priors=offered) as http:
        assert asked(PHOTO)["prior"] == "embedded_photographs"
        assert asked(PAGE)["prior"] == "embedded_documents"
        refused = asked(PHOTO, operator={"type": "colorize"})
        size = {"image_size": [64, 64]}
        estimates = [
            http.post("/v1/restore/estimate", json={"spec": {**QUICK, "operator": each}, **size})
            for each in ({"type": "denoise"}, {"type": "colorize"})
        ]
    assert [each.json()["prior"] for each in estimates] == offered
    assert refused["code"] == "prior_not_loaded"
    assert "'embedded' is not loaded here" in refused["detail"]


def test_an_outage_counts_before_a_prior_that_is_not_offered() -> None:
    """So that clients try again."""
    specs = [
        RestoreSpec.model_validate({"operator": {"type": "denoise"}, "prior": prior})
        for prior in ("embedded", "embedded_photographs", "embedded_documents")
    ]
    away: list[WorkerInfo] = []
    with pytest.raises(NoWorker):
        computable(specs, lambda spec: worker_for(spec.prior, ["embedded_photographs"], away))
    with pytest.raises(PriorNotLoaded, match="'embedded' is not loaded"):
        computable(specs, lambda spec: worker_for(spec.prior, [], away))
