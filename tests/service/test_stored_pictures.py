"""Stored pictures, referenced by hash: accepted for all tasks, per tenant, until expiry."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis

from aps_contract import JobState
from aps_core.tasks import TaskSpec
from service.api.app_state import Services
from service.dispatch.notifier import JobNotifier
from service.dispatch.sweeper import Sweeper
from service.jobs import ArtifactStore, Job, KnownPictures, QuotaExceeded, new_job_id, open_store
from service.settings import Settings
from tests.stack import Stack, png

QUICK = {"operator": {"type": "denoise"}, "sigma": 0.1, "sampler": {"steps": 1, "inner_steps": 1}}


def keep(http: httpx.Client, data: bytes) -> str:
    answer = http.post("/v1/files", content=data, headers={"Content-Type": "image/png"})
    assert answer.status_code == 201, answer.text
    return f"sha256:{answer.json()['sha256']}"


def refused(answer: httpx.Response, field: str) -> bool:
    problem = answer.json()
    return (answer.status_code, problem["code"], problem["errors"][0]["pointer"]) == (
        422,
        "unknown_picture",
        f"/{field}",
    )


def test_an_upload_returns_the_stored_picture(stack: Stack) -> None:
    answer = stack.http.post(
        "/v1/files", content=png(40, 30), headers={"Content-Type": "image/png"}
    ).json()
    assert (answer["width"], answer["height"], answer["has_alpha"], answer["media_type"]) == (
        40,
        30,
        False,
        "image/png",
    )
    job = stack.http.post(
        "/v1/restore", json={**QUICK, "image": f"sha256:{answer['sha256']}"}
    ).json()
    stored = job["artifacts"][0]
    assert (stored["name"], stored["sha256"], stored["bytes"]) == (
        "measurement.png",
        answer["sha256"],
        answer["bytes"],
    )
    assert hashlib.sha256(stack.http.get(stored["url"]).content).hexdigest() == answer["sha256"]


def test_files_that_are_not_pictures_are_not_stored(stack: Stack) -> None:
    for content, kind, status in (
        (b"GIF89a", "image/png", 422),
        (b"", "image/png", 422),
        (png(), "text/html", 415),
    ):
        answer = stack.http.post("/v1/files", content=content, headers={"Content-Type": kind})
        assert answer.status_code == status, answer.text


SLOTS = [(task, slot) for task in sorted(TaskSpec.family) for slot in TaskSpec.named(task).pictures]
SPECS: dict[str, dict[str, Any]] = {
    "restore": {
        "operator": {"type": "compose", "stages": [{"type": "kernel_blur"}, {"type": "inpainting"}]}
    },
    "edit": {"prompt": "a red flower"},
    "stylize": {"prompt": "a town"},
}


PHOTOS = ("image", "style")


@pytest.mark.parametrize(("task", "slot"), SLOTS)
def test_json_and_forms_name_pictures_in_any_slot(stack: Stack, task: str, slot: str) -> None:
    files = {
        name: png(*((15, 15) if name == "kernel" else (128, 128)), "RGB" if name in PHOTOS else "L")
        for name in TaskSpec.named(task).pictures
    }
    known = {name: keep(stack.http, data) for name, data in files.items()}
    del files[slot]
    form = stack.http.post(
        f"/v1/{task}", files=files, data={"spec": json.dumps(SPECS[task]), slot: known[slot]}
    )
    by_json = stack.http.post(f"/v1/{task}", json={**SPECS[task], **known})
    assert (form.status_code, by_json.status_code) == (202, 202), form.text + by_json.text
    for answer in (form, by_json):
        assert {artifact["sha256"] for artifact in answer.json()["artifacts"]} == {
            named.removeprefix("sha256:") for named in known.values()
        }
        stack.http.post(answer.json()["urls"]["cancel"])


def test_a_result_can_be_the_input_of_the_next_job(stack: Stack) -> None:
    stack.ensure_worker()
    # nobody else makes this picture
    first = stack.wait(stack.submit(sampler=QUICK["sampler"], seed=471_108)["id"])
    result = next(artifact for artifact in first["artifacts"] if artifact["name"] == "result.png")
    second = stack.http.post(
        "/v1/restore",
        json={**QUICK, "image": f"sha256:{result['sha256']}"},
        headers={"Prefer": "wait=30"},
    ).json()
    assert second["state"] == "succeeded"
    assert second["artifacts"][0]["sha256"] == result["sha256"]
    # the second has it for itself
    assert stack.http.delete(f"/v1/jobs/{first['id']}").status_code == 204
    assert stack.http.get(second["artifacts"][0]["url"]).status_code == 200
    third = stack.http.post("/v1/restore", json={**QUICK, "image": f"sha256:{result['sha256']}"})
    assert third.status_code == 202, third.text
    for job in (second, stack.wait(third.json()["id"])):
        assert stack.http.delete(f"/v1/jobs/{job['id']}").status_code == 204
    assert refused(
        stack.http.post("/v1/restore", json={**QUICK, "image": f"sha256:{result['sha256']}"}),
        "image",
    )


@pytest.mark.parametrize(
    "named", ["sha256:" + 64 * "0", "sha256:", "sha256:../../etc/passwd", "sha256:" + 64 * "F"]
)
def test_an_unknown_hash_names_its_field(stack: Stack, named: str) -> None:
    assert refused(stack.http.post("/v1/restore", json={**QUICK, "image": named}), "image")
    assert refused(
        stack.http.post(
            "/v1/restore", data={"spec": json.dumps(QUICK), "mask": named}, files={"image": png()}
        ),
        "mask",
    )


def keep_here(services: Services, data: bytes, tenant: str) -> None:
    asyncio.run(services.pictures.keep(data, tenant))


def test_stored_pictures_are_limited_per_client(redis: Redis, settings: Settings) -> None:
    services = Services.open(settings.model_copy(update={"max_stored": 2}))
    try:
        for side in (8, 9):
            keep_here(services, png(side, side), "ann")
        message = r"2 of your pictures .* expires in \d+ s"
        with pytest.raises(QuotaExceeded, match=message) as refusal:
            keep_here(services, png(10, 10), "ann")
        assert 0 < refusal.value.retry_after <= 3600
        assert len(list(Path(str(services.artifacts.root)).iterdir())) == 2, (
            "what is refused leaves nothing behind"
        )
        keep_here(services, png(10, 10), "bob")
        # its time is over
        oldest: Any = redis.zrange("aps:uploads:ann", 0, 0)
        redis.zadd("aps:uploads:ann", {oldest[0]: 1})
        keep_here(services, png(10, 10), "ann")
    finally:
        services.close()


def test_expired_pictures_are_deleted_unless_a_live_job_needs_them(
    redis: Redis, settings: Settings
) -> None:
    settings = settings.model_copy(update={"job_ttl_seconds": 60})
    store, _ = open_store(settings)
    artifacts, notifier = ArtifactStore(settings.artifacts), JobNotifier(settings)
    known, sweeper = (
        KnownPictures(redis, settings.key_prefix, 60),
        Sweeper(settings, store, artifacts, notifier),
    )
    upload, waiting = new_job_id(), new_job_id()
    stored = artifacts.put(upload, "image.png", png(), "image/png")
    sha256 = stored.file.removesuffix(".png")
    known.keep(upload, "", stored, most=1, most_bytes=0)
    artifacts.copy(upload, stored.file, waiting)
    fields = {
        "task": "restore",
        "prior": "embedded",
        "spec": {},
        "inputs": {"image": stored.model_dump()},
    }
    store.submit(Job.model_validate({"id": waiting, **fields}))
    assert known.holders("", sha256) == [waiting, upload], "a live job keeps it longest"

    def swept() -> set[str]:
        redis.hdel("aps:leaders", "files")
        sweeper.sweep()
        return {folder.name for folder in Path(str(artifacts.root)).iterdir()} & {upload, waiting}

    assert swept() == {upload, waiting}
    redis.delete(f"aps:upload:{upload}")  # its seconds are over
    redis.zadd(f"aps:known::{sha256}", {upload: time.time() - 1})
    swept()
    redis.zincrby("aps:orphans", -7200, upload)  # first seen long ago
    assert swept() == {waiting}
    assert known.holders("", sha256) == [waiting]
    assert redis.ttl(f"aps:known::{sha256}") == -1
    store.cancel(waiting)
    found = store.get(waiting)
    assert found is not None
    assert found.state is JobState.CANCELED
    assert 0 < redis.ttl(f"aps:known::{sha256}") <= 61
    notifier.close()
    store.redis.close()
