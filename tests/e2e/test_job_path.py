"""Jobs through all real processes: HTTP, Redis, Celery and sampler."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.stack import Stack, png

QUICK = {"steps": 4, "inner_steps": 4}
LONG = {"steps": 24, "inner_steps": 2}
"""Settings of a job long enough to be interrupted, even on a fast machine."""


def test_a_picture_is_restored(stack: Stack) -> None:
    answer = stack.http.post(
        "/v1/restore",
        files={"image": png(31, 45)},
        data={
            "spec": json.dumps(
                {"operator": {"type": "super_resolution", "factor": 2}, "seed": 7, "sampler": QUICK}
            )
        },
        headers={"X-Request-ID": "mine-1"},
    )
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["Location"] == job["urls"]["self"] == f"/v1/jobs/{job['id']}"
    assert answer.headers["X-Request-ID"] == job["request_id"] == "mine-1"
    assert job["estimated_seconds"] > 0
    assert job["output_size"] == [62, 90]

    events = list(stack.events(job["id"]))
    progress = [data for _, kind, data in events if kind == "progress"]
    assert [data["step"] for data in progress] == [1, 2, 3, 4]
    anchors = [position for data in progress for position in data["anchors"]]
    assert sorted(anchors) == list(range(progress[0]["grid"][0] * progress[0]["grid"][1])), (
        "every token is decided exactly once"
    )
    assert all(len(data["confidence"]) == len(data["anchors"]) for data in progress)
    assert len({score for data in progress for score in data["confidence"]}) > len(anchors) // 2, (
        "each token's own"
    )
    assert progress[0]["known"] == []
    preview = stack.http.get(progress[1]["preview_url"])
    assert preview.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(preview.content)).size == (62, 90)
    assert events[-1][1] == "done"
    assert events[-1][2]["job"]["state"] == "succeeded"

    done = stack.job(job["id"])
    assert done["progress"]["step"] == 4
    assert done["resumed_from_step"] is None
    assert {artifact["name"] for artifact in done["artifacts"]} == {
        "measurement.png",
        "result.png",
        "result.json",
    }
    assert Image.open(io.BytesIO(stack.artifact(job["id"], "result.png"))).size == (62, 90)
    sidecar = json.loads(stack.artifact(job["id"], "result.json"))
    assert sidecar["job"] == job["id"]
    assert sidecar["spec"]["sampler"]["steps"] == 4


def test_json_with_a_data_uri_and_the_same_seed_give_the_same_bytes(stack: Stack) -> None:
    import base64

    form = stack.submit(seed=3, sampler=QUICK)
    uri = "data:image/png;base64," + base64.b64encode(png()).decode()
    spec = {"operator": {"type": "denoise"}, "sigma": 0.1, "seed": 3, "sampler": QUICK}
    inline = stack.http.post("/v1/restore", json={"image": uri, **spec})
    assert inline.status_code == 202, inline.text
    for job in (form, inline.json()):
        assert stack.wait(job["id"])["state"] == "succeeded"
    assert stack.artifact(form["id"], "result.png") == stack.artifact(
        inline.json()["id"], "result.png"
    )


def test_events_resume_after_the_last_received_id(stack: Stack) -> None:
    job = stack.submit(sampler=QUICK)
    whole = list(stack.events(job["id"]))
    assert list(stack.events(job["id"], after=whole[2][0])) == whole[3:]
    assert list(stack.events(job["id"], after=whole[-1][0])) == []


def wait_for_step(stack: Stack, job_id: str, step: int) -> None:
    for _, kind, data in stack.events(job_id):
        assert kind != "done", data
        if kind == "progress" and data["step"] >= step:
            return


def test_killing_the_worker_costs_one_step_and_does_not_change_the_result(stack: Stack) -> None:
    spec: dict[str, Any] = {"seed": 11, "sampler": LONG}
    undisturbed = stack.submit(**spec)
    assert stack.wait(undisturbed["id"])["state"] == "succeeded"

    job = stack.submit(**spec)
    wait_for_step(stack, job["id"], 5)
    stack.kill_workers()
    assert stack.job(job["id"])["state"] in ("running", "queued")
    stack.start_worker()
    done = stack.wait(job["id"])
    assert done["state"] == "succeeded", done["error"]
    assert done["resumed_from_step"] >= 5
    assert done["attempt"] == 2
    assert stack.artifact(job["id"], "result.png") == stack.artifact(
        undisturbed["id"], "result.png"
    )
    steps = [data["step"] for _, kind, data in stack.events(job["id"]) if kind == "progress"]
    assert steps == list(range(1, LONG["steps"] + 1)), "no step is computed twice or left out"


def test_a_killed_child_is_replaced_and_the_job_resumed(stack: Stack) -> None:
    job = stack.submit(seed=12, sampler=LONG)
    wait_for_step(stack, job["id"], 3)
    parent = stack.workers[-1].pid
    child = int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])
    os.kill(child, signal.SIGKILL)
    done = stack.wait(job["id"])
    assert (done["state"], done["attempt"]) == ("succeeded", 2)
    assert done["resumed_from_step"] >= 3


def test_a_drained_worker_requeues_its_job_within_a_step(stack: Stack) -> None:
    job = stack.submit(seed=13, sampler=LONG)
    wait_for_step(stack, job["id"], 3)
    worker = stack.workers.pop()
    started = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(40) == 0
    drained = time.monotonic() - started
    waiting = stack.job(job["id"])
    assert (waiting["state"], waiting["phase"]) == ("queued", "preempted")
    stack.start_worker()
    done = stack.wait(job["id"])
    assert done["state"] == "succeeded"
    assert done["resumed_from_step"] >= 3
    assert drained < 5 + 3 * waiting["progress"]["seconds"]


def test_canceling_stops_the_job_and_keeps_its_previews(stack: Stack) -> None:
    job = stack.submit(sampler={"steps": 128, "inner_steps": 8})
    wait_for_step(stack, job["id"], 2)
    answer = stack.http.post(f"/v1/jobs/{job['id']}/cancel")
    assert answer.status_code == 202
    done = stack.wait(job["id"])
    assert done["state"] == "canceled"
    assert done["progress"]["step"] < 128
    assert Image.open(io.BytesIO(stack.artifact(job["id"], "partial.jpg"))).size == (64, 64)
    assert stack.http.post(f"/v1/jobs/{job['id']}/cancel").status_code == 200
    after = stack.submit(sampler=QUICK)
    assert stack.wait(after["id"])["state"] == "succeeded", "the worker goes on"


def test_a_long_step_shows_its_estimate_until_it_ends(stack: Stack) -> None:
    job = stack.submit(
        png(96, 64), sampler={"type": "aps", "steps": 2, "inner_steps": 5000, "inner": "fixed"}
    )
    url, data = next(
        (data["current_preview_url"], data)
        for _, kind, data in stack.events(job["id"])
        if kind == "inner" and "current_preview_url" in data
    )
    answer = stack.http.get(url)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    assert Image.open(io.BytesIO(answer.content)).size == (96, 64)
    assert data["step"] == 1
    stack.http.post(job["urls"]["cancel"])
    stack.wait(job["id"])
    assert stack.http.get(url).status_code == 204


def test_a_queued_job_has_a_position_and_is_canceled_at_once(stack: Stack) -> None:
    running = stack.submit(sampler={"steps": 128, "inner_steps": 8})
    wait_for_step(stack, running["id"], 1)
    waiting = [stack.submit(sampler=QUICK) for _ in range(2)]
    assert [stack.job(job["id"])["queue_position"] for job in waiting] == [0, 1]
    assert stack.http.post(waiting[0]["urls"]["cancel"]).json()["state"] == "canceled"
    assert stack.job(waiting[1]["id"])["queue_position"] == 0
    stack.http.post(running["urls"]["cancel"])
    assert stack.wait(waiting[1]["id"])["state"] == "succeeded"


def test_a_job_is_polled_listed_and_deleted(stack: Stack) -> None:
    job = stack.submit(sampler=QUICK)
    stack.wait(job["id"])
    first = stack.http.get(f"/v1/jobs/{job['id']}")
    assert (
        stack.http.get(
            f"/v1/jobs/{job['id']}", headers={"If-None-Match": first.headers["ETag"]}
        ).status_code
        == 304
    )
    assert "Retry-After" not in first.headers
    page = stack.http.get("/v1/jobs", params={"limit": 1}).json()
    assert page["jobs"][0]["id"] == job["id"]
    if page["next"]:
        assert stack.http.get(page["next"]).json()["jobs"][0]["id"] != job["id"]
    assert stack.http.delete(f"/v1/jobs/{job['id']}").status_code == 204
    gone = stack.http.get(f"/v1/jobs/{job['id']}")
    assert (gone.status_code, gone.json()["code"]) == (404, "not_found")
    assert not (stack.settings.artifacts_dir / job["id"]).exists()


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGBA"])
def test_other_picture_formats_are_converted(stack: Stack, mode: str) -> None:
    job = stack.submit(
        png(40, 24, mode, "JPEG" if mode == "CMYK" else "PNG"),
        sampler={"steps": 2, "inner_steps": 1},
    )
    assert stack.wait(job["id"])["state"] == "succeeded"
