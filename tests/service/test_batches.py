"""Batches: many restorations in one request, with real jobs and files."""

from __future__ import annotations

import asyncio
import io
import json
import time
import zipfile
from typing import Any
from uuid import uuid4

import httpx
import pytest

from aps_contract import MAX_PICTURES, Webhook
from service.api.app_state import Services
from service.api.batches.accept import MAX_SECONDS, accept_batch
from service.api.jobs.accept import Submission
from service.api.jobs.options import Options
from service.jobs import Batch, Quota
from service.settings import Settings
from tests.apis import register_idle_worker
from tests.stack import TIMEOUT, Stack, png, uri

QUICK: dict[str, Any] = {
    "operator": {"type": "denoise"},
    "sigma": 0.1,
    "sampler": {"steps": 1, "inner_steps": 1},
}
LONG: dict[str, Any] = {**QUICK, "sampler": {"steps": 128, "inner_steps": 40}}


def post(http: httpx.Client, images: list[str], key: str = "", **body: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    sent = {"images": images, "spec": QUICK, **body}
    return http.post("/v1/batches", json=sent, headers=headers)


def ended(http: httpx.Client, batch: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + TIMEOUT
    while not (found := http.get(batch["urls"]["self"]).json())["finished"]:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return dict(found)


def jobs(batch: dict[str, Any]) -> list[str | None]:
    return [picture["job"] for picture in batch["pictures"]]


def test_every_picture_becomes_a_job_and_the_results_come_as_a_zip(stack: Stack) -> None:
    answer = post(stack.http, [uri(png(40, 30)), uri(png(48, 32))], priority="low")
    assert answer.status_code == 202, answer.text
    batch = answer.json()
    assert answer.headers["Location"] == batch["urls"]["self"]
    first = stack.job(batch["pictures"][0]["job"])
    assert (first["batch"], first["priority"], first["image_size"]) == (
        batch["id"],
        "low",
        [40, 30],
    )
    done = ended(stack.http, batch)
    assert (done["counts"], done["progress"]) == ({"succeeded": 2}, 1)
    archive = stack.http.get(done["urls"]["results"])
    assert archive.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(archive.content)) as opened:
        assert opened.testzip() is None
        assert opened.namelist() == [
            f"{number}-result.{suffix}" for number in ("001", "002") for suffix in ("json", "png")
        ]
        stored = opened.read("002-result.png")
    assert stored == stack.http.get(done["pictures"][1]["urls"]["result"]).content


def test_a_form_takes_files_and_hashes(stack: Stack) -> None:
    kept = stack.http.post("/v1/files", content=png(), headers={"Content-Type": "image/png"})
    answer = stack.http.post(
        "/v1/batches",
        files=[
            ("images", ("../../etc/a.png", png(40, 40))),
            ("images", ("b.png", png(41, 40))),
            ("images", (None, f"sha256:{kept.json()['sha256']}")),
            ("spec", (None, json.dumps(QUICK))),
        ],
    )
    assert answer.status_code == 202, answer.text
    sizes = [stack.job(job or "")["image_size"] for job in jobs(answer.json())]
    assert sizes == [[40, 40], [41, 40], [64, 64]]


def test_a_refused_picture_does_not_stop_the_others(stack: Stack) -> None:
    bad = "data:image/png;base64,AAAA"
    batch = post(stack.http, [uri(png()), bad, "sha256:" + 64 * "0"]).json()
    assert [picture["state"] == "refused" for picture in batch["pictures"]] == [False, True, True]
    codes = [(picture["error"] or {}).get("code") for picture in batch["pictures"]]
    assert codes == [None, "not_an_image", "unknown_picture"]
    assert ended(stack.http, batch)["counts"] == {"succeeded": 1, "refused": 2}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"images": ["data:image/png;base64,AAAA", uri(png())][:1]}, 422, "not_an_image"),
        ({"images": [uri(png())], "spec": {**QUICK, "sigma": 7}}, 422, "invalid_spec"),
        ({"images": []}, 422, "invalid_spec"),
        ({"images": ["sha256:" + 64 * "0"] * (MAX_PICTURES + 1)}, 422, "invalid_spec"),
        ({"images": [7]}, 400, "malformed_body"),
        ({"images": [uri(png())], "mask": uri(png())}, 422, "invalid_spec"),
    ],
)
def test_a_batch_without_an_accepted_picture_is_refused(
    stack: Stack, body: dict[str, Any], status: int, code: str
) -> None:
    answer = post(stack.http, **body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_the_same_key_returns_the_same_batch(stack: Stack) -> None:
    key, images = str(uuid4()), [uri(png(40, 30)), uri(png(30, 40))]
    first, again = (post(stack.http, images, key) for _ in range(2))
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert (again.json()["id"], jobs(again.json())) == (first.json()["id"], jobs(first.json()))
    other = post(stack.http, images[::-1], key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert post(stack.http, images, str(uuid4())).json()["id"] != first.json()["id"]


def test_a_batch_is_canceled_and_deleted_as_a_whole(stack: Stack) -> None:
    batch = post(stack.http, [uri(png()), uri(png(48, 48))], spec=LONG).json()
    deadline = time.monotonic() + TIMEOUT
    while stack.job(batch["pictures"][0]["job"])["state"] == "queued":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    refused = stack.http.delete(batch["urls"]["self"])
    assert (refused.status_code, refused.json()["code"]) == (409, "job_running")
    early = stack.http.get(batch["urls"]["results"])
    assert early.status_code == 404
    assert "no results yet; its jobs have not ended" in early.json()["detail"]
    assert stack.http.post(batch["urls"]["cancel"]).status_code == 202
    assert ended(stack.http, batch)["counts"] == {"canceled": 2}
    assert stack.http.get(batch["urls"]["results"]).status_code == 404
    assert stack.http.delete(batch["urls"]["self"]).status_code == 204
    assert stack.http.get(batch["urls"]["self"]).status_code == 404
    for job in jobs(batch):
        assert stack.http.get(f"/v1/jobs/{job}").status_code == 404
        assert not (stack.settings.artifacts_dir / str(job)).exists()


def test_a_batch_belongs_to_its_tenant(guarded: httpx.Client, tokens: dict[str, str]) -> None:
    def bearer(name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {tokens[name]}"}

    key, sent = str(uuid4()), {"images": [uri(png())], "spec": QUICK}
    made = {
        name: guarded.post(
            "/v1/batches", json=sent, headers={**bearer(name), "Idempotency-Key": key}
        ).json()
        for name in ("ann", "bob")
    }
    assert made["ann"]["id"] != made["bob"]["id"]
    place = made["ann"]["urls"]["self"]
    assert guarded.get(place, headers=bearer("ann")).status_code == 200
    for method, path in (("GET", place), ("POST", f"{place}/cancel"), ("DELETE", place)):
        assert guarded.request(method, path, headers=bearer("bob")).status_code == 404
    assert guarded.post("/v1/batches", json=sent, headers=bearer("reader")).status_code == 403


@pytest.fixture
def services(settings: Settings):
    """An API's services with a worker that computes nothing."""
    register_idle_worker(settings)
    opened = Services.open(settings)
    opened.decoder.start()
    yield opened
    opened.close()


def test_a_batch_over_the_quota_continues_when_it_is_sent_again(services: Services) -> None:
    images = [png(20 + side, 20) for side in range(4)]
    shared = Submission("restore", QUICK, {}, quota=Quota(max_queued=2), idempotency_key="a")
    first, _ = submit(services, shared, images)
    assert [entry.error and entry.error.code for entry in first.entries] == [
        *(None, None),
        *("quota_exceeded", "quota_exceeded"),
    ]
    services.store.cancel(first.jobs[0])
    again, replayed = submit(services, shared, images)
    assert replayed
    assert again.jobs[:2] == first.jobs
    assert [entry.error is None for entry in again.entries] == [True, True, True, False]


def test_a_request_that_broke_off_is_continued(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [png(20 + side, 20) for side in range(2)]
    shared = Submission("restore", QUICK, {}, tenant="ann", idempotency_key="b")
    with monkeypatch.context() as patch:
        patch.setattr(services.batches, "put", _fails)
        with pytest.raises(ConnectionError):
            submit(services, shared, images)
    accepted = {job.id for job in services.store.page(tenant="ann").jobs}
    batch, _ = submit(services, shared, images)
    assert set(batch.jobs) == accepted
    assert len(accepted) == 2


def test_its_end_is_reported_once(services: Services) -> None:
    hook = Webhook(url="https://example.org/hook", events=["batch.completed"])
    shared = Submission("restore", QUICK, {}, options=Options(webhook=hook))
    batch, _ = submit(services, shared, [png(20 + side, 20) for side in range(3)])

    def reports() -> list[str]:
        sent = [each for job in batch.jobs for each in services.outbox.deliveries(job)]
        return [f"{each.type} {each.job}" for each in sent]

    services.store.cancel(batch.jobs[1])
    services.store.delete(batch.jobs[0])
    assert reports() == []
    services.store.cancel(batch.jobs[2])
    assert reports() == [f"batch.completed {batch.jobs[2]}"]


def test_a_batch_that_ends_while_it_is_submitted_is_reported_at_its_end(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = Webhook(url="https://example.org/hook", events=["job.completed", "batch.completed"])
    shared = Submission("restore", QUICK, {}, options=Options(webhook=hook))
    put, reported = services.batches.put, []

    def ended_early(batch: Batch) -> None:
        for job in batch.jobs:
            services.store.cancel(job)
            reported.extend(each.type for each in services.outbox.deliveries(job))
        put(batch)

    monkeypatch.setattr(services.batches, "put", ended_early)
    batch, _ = submit(services, shared, [png(20, 20), png(21, 20)])
    assert reported == ["job.completed", "job.completed"]
    last = [each.type for each in services.outbox.deliveries(batch.jobs[-1])]
    assert last == ["job.completed", "batch.completed"]


def test_a_slow_batch_is_accepted_in_parts(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [png(20 + side, 20) for side in range(2)]
    shared = Submission("restore", QUICK, {}, idempotency_key="c")
    clock = iter([0.0, 0.0, MAX_SECONDS + 1])
    with monkeypatch.context() as patch:
        patch.setattr("service.api.batches.accept.now", lambda: next(clock))
        first, _ = submit(services, shared, images)
    assert [entry.error and entry.error.code for entry in first.entries] == [None, "busy"]
    again, _ = submit(services, shared, images)
    assert (again.jobs[0], len(again.jobs)) == (first.jobs[0], 2)


def submit(services: Services, shared: Submission, images: list[bytes]) -> tuple[Batch, bool]:
    return asyncio.run(accept_batch(services, shared, images))


def _fails(_: object) -> None:
    raise ConnectionError("the process stops here")
