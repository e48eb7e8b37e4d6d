"""Estimates before submission, filters of the job list, suggestions for misplaced fields."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aps_client import Client
from aps_core.priors.base import PRESETS
from aps_core.priors.embedded.image import EmbeddedPrior
from aps_core.samplers import SamplerSpec
from tests.stack import Stack, png

DENOISE = {"operator": {"type": "denoise"}}


def estimated(stack: Stack, task: str = "restore", **asked: Any) -> dict[str, Any]:
    answer = stack.http.post(f"/v1/{task}/estimate", json=asked)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_an_estimate_is_what_the_job_then_says(stack: Stack) -> None:
    spec = {**DENOISE, "working_size": 64, "sampler": {"steps": 1, "inner_steps": 1}}
    found = estimated(stack, spec=spec, image_size=[96, 72])
    job = stack.submit(png(96, 72), **spec)
    stack.http.post(job["urls"]["cancel"])
    assert found["output_size"] == job["output_size"] == [64, 48]
    assert found["seconds"] == pytest.approx(job["estimated_seconds"], rel=1e-3, abs=1e-3)
    assert found["reduced_size"] == [64, 48]
    assert found["refusal"] is None
    assert len(set(found["seconds_by_preset"].values())) == 1, "the steps are set"


def test_an_estimate_is_for_the_prior_that_a_photograph_gets(stack: Stack) -> None:
    for operator, prior in (("auto", "embedded_photographs"), ("colorize", "embedded")):
        found = estimated(stack, spec={"operator": {"type": operator}}, image_size=[96, 72])
        assert found["prior"] == prior
    named = {"operator": {"type": "auto"}, "prior": "embedded"}
    slower = estimated(stack, spec=named, image_size=[96, 72])
    assert slower["prior"] == "embedded"


def test_presets_take_less_or_more_time(stack: Stack) -> None:
    for task, spec in (
        ("restore", DENOISE),
        ("edit", {"prompt": "x", "left": 8}),
        ("stylize", {"prompt": "x"}),
    ):
        seconds = estimated(stack, task, spec=spec, image_size=[64, 64])["seconds_by_preset"]
        assert tuple(seconds) == PRESETS
        assert seconds["fast"] < seconds["balanced"] < seconds["best"], task
        chosen = estimated(stack, task, spec={**spec, "preset": "fast"}, image_size=[64, 64])
        assert chosen["seconds"] == seconds["fast"]
    assert estimated(stack, "guide", spec={"prompt": "x"})["seconds_by_preset"] == {}


def test_a_job_records_its_preset_and_the_settings_it_means(stack: Stack) -> None:
    job = stack.submit(png(16, 16), preset="fast")
    stack.http.post(job["urls"]["cancel"])
    assert job["spec"]["preset"] == "fast"
    usual = SamplerSpec.named(EmbeddedPrior.restoring_sampler)
    wanted = EmbeddedPrior.recommended_for(usual, preset="fast")
    sampler = job["spec"]["sampler"]
    assert sampler["type"] == EmbeddedPrior.restoring_sampler
    assert {name: sampler[name] for name in wanted} == wanted
    assert sampler["steps"] < EmbeddedPrior.recommended_for(usual)["steps"]


def test_what_would_be_refused_is_said_with_the_estimate(stack: Stack) -> None:
    found = estimated(stack, spec=DENOISE, image_size=[4000, 3000])
    assert found["refusal"]["code"] == "image_too_large"
    assert found["output_size"] == [4000, 3000]
    for asked, status in (
        ({"spec": DENOISE}, 422),
        ({"spec": {"operator": {"type": "fog"}}, "image_size": [9, 9]}, 422),
        ({"spec": DENOISE, "image_size": [0, 9]}, 422),
        ({"spec": DENOISE, "picture": "x"}, 422),
    ):
        assert stack.http.post("/v1/restore/estimate", json=asked).status_code == status


def test_misplaced_fields_get_a_suggestion(stack: Stack) -> None:
    for spec, meant in (
        ({"step": 3}, "sampler.steps"),
        ({"inner_step": 3}, "sampler.inner_steps"),
        ({"num_sample": 2}, "num_samples"),
        ({"perceptual_weights": 1}, "loss.perceptual_weight"),
    ):
        asked: dict[str, object] = {"spec": {**DENOISE, **spec}, "image_size": [8, 8]}
        problem = stack.http.post("/v1/restore/estimate", json=asked).json()
        (error,) = problem["errors"]
        assert error["pointer"] == f"/{next(iter(spec))}"
        assert error["detail"] == f"There is no such field; did you mean '{meant}'?"
    asked = {"spec": {**DENOISE, "colour_of_the_sky": 1}, "image_size": [8, 8]}
    (error,) = stack.http.post("/v1/restore/estimate", json=asked).json()["errors"]
    assert error["detail"] == "There is no such field"
    for path in ("restore/estimate", "batches"):
        problem = stack.http.post(f"/v1/{path}", json={**DENOISE, "images": ["x"]}).json()
        details = {error["pointer"]: error["detail"] for error in problem["errors"]}
        assert details["/operator"] == "There is no such field; did you mean 'spec.operator'?", (
            problem
        )


def test_the_list_of_jobs_is_filtered_by_state_task_and_time(stack: Stack) -> None:
    began = datetime.now(UTC)
    made = [
        stack.http.post(
            "/v1/generate", json={"width": 16, "height": 16, "sampler": {"steps": 1}}
        ).json()
        for _ in range(3)
    ]
    for job in made:
        stack.wait(job["id"])
    canceled = stack.submit(png(16, 16), sampler={"steps": 128})
    stack.http.post(canceled["urls"]["cancel"])
    stack.wait(canceled["id"])
    newest = [job["id"] for job in reversed(made)]

    with Client(stack.url) as client:

        def ids(**wanted: Any) -> list[str]:
            return [job.id for job in client.jobs(2, **wanted)]

        assert ids(created_after=began) == [canceled["id"], *newest]
        assert ids(created_after=began, task="generate") == newest
        assert ids(created_after=began, state=["canceled", "failed"]) == [canceled["id"]]
        assert ids(created_after=began, task="generate", state="canceled") == []
        assert ids(created_after=began + timedelta(days=1)) == []
        older = ids(created_before=began)
        assert not {canceled["id"], *newest} & set(older)
    assert stack.http.get("/v1/jobs?state=lost").status_code == 422
    assert stack.http.get("/v1/jobs?created_after=yesterday").status_code == 422


def test_a_picture_that_is_too_large_fits_in_tiles(stack: Stack) -> None:
    spec = {**DENOISE, "sampler": {"steps": 1, "inner_steps": 1}}
    refusal = estimated(stack, spec=spec, image_size=[700, 600])["refusal"]
    assert refusal["code"] == "image_too_large"
    assert "set 'tile' to 256 to restore it at full size in 9 tiles, in about" in refusal["detail"]
    found = estimated(stack, spec={**spec, "tile": 256}, image_size=[700, 600])
    assert found["refusal"] is None
    assert found["output_size"] == [700, 600]
    assert found["tokens"] == 9 * (256 // 4) ** 2
