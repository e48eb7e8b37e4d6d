"""Submission: idempotency keys, waiting for results, limits."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import pytest
from redis import Redis

from service.jobs import Claim, Job, JobStore, QueueFull, QuotaExceeded, Terms, new_job_id
from tests.stack import Stack, png

QUICK: dict[str, Any] = {
    "operator": {"type": "denoise"},
    "sigma": 0.1,
    "sampler": {"steps": 1, "inner_steps": 1},
}
LONG: dict[str, Any] = {**QUICK, "sampler": {"steps": 24, "inner_steps": 8}}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def post(
    stack: Stack, spec: dict[str, Any] = QUICK, image: bytes | None = None, **headers: str
) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return stack.http.post(
        "/v1/restore",
        files={"image": image or png()},
        data={"spec": json.dumps(spec)},
        headers=named,
    )


def jobs(stack: Stack) -> list[str]:
    return [job["id"] for job in stack.http.get("/v1/jobs", params={"limit": 100}).json()["jobs"]]


def test_the_same_key_and_request_create_one_job(stack: Stack) -> None:
    key = f'"{uuid4()}"'
    first = post(stack, Idempotency_Key=key)
    assert (first.status_code, first.headers.get("Idempotent-Replayed")) == (202, None)
    before, folders = jobs(stack), len(list(stack.settings.artifacts_dir.iterdir()))
    again = post(stack, dict(reversed(QUICK.items())), Idempotency_Key=key)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (202, "true")
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["Location"] == first.headers["Location"]
    assert jobs(stack) == before
    assert len(list(stack.settings.artifacts_dir.iterdir())) == folders
    assert post(stack, Idempotency_Key=f'"{uuid4()}"').json()["id"] != first.json()["id"]


@pytest.mark.parametrize("change", [{"spec": {**QUICK, "seed": 1}}, {"image": png(65, 64)}])
def test_the_same_key_with_another_request_is_refused(stack: Stack, change: dict[str, Any]) -> None:
    key = str(uuid4())
    first = post(stack, Idempotency_Key=key).json()
    answer = post(stack, **change, Idempotency_Key=key)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert first["id"] in answer.json()["detail"]


def test_a_rejected_request_does_not_consume_its_key(stack: Stack) -> None:
    key = str(uuid4())
    assert post(stack, {**QUICK, "sigma": 7}, Idempotency_Key=key).status_code == 422
    assert post(stack, Idempotency_Key=key).status_code == 202


def test_concurrent_requests_create_one_job(stack: Stack) -> None:
    key, before = str(uuid4()), set(jobs(stack))
    folders = {path.name for path in stack.settings.artifacts_dir.iterdir()}
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: post(stack, Idempotency_Key=key), range(6)))
    assert {answer.status_code for answer in answers} == {202}
    ids = {answer.json()["id"] for answer in answers}
    assert set(jobs(stack)) - before == ids
    assert len(ids) == 1
    assert sorted(answer.headers.get("Idempotent-Replayed", "no") for answer in answers) == [
        "no",
        *["true"] * 5,
    ]
    assert {path.name for path in stack.settings.artifacts_dir.iterdir()} - folders == ids, (
        "nothing is left of the duplicates"
    )


def test_the_key_of_a_deleted_job_says_so(stack: Stack) -> None:
    key = str(uuid4())
    job = post(stack, Idempotency_Key=key, Prefer="wait=30").json()
    assert stack.http.delete(f"/v1/jobs/{job['id']}").status_code == 204
    answer = post(stack, Idempotency_Key=key)
    assert (answer.status_code, answer.json()["code"]) == (410, "expired")


def test_waiting_gives_the_finished_job(stack: Stack) -> None:
    answer = post(stack, Prefer="respond-async, wait=30")
    assert (answer.status_code, answer.headers["Preference-Applied"]) == (200, "wait=30")
    assert answer.json()["state"] == "succeeded"
    assert {artifact["name"] for artifact in answer.json()["artifacts"]} >= {"result.png"}
    assert answer.headers["Location"] == answer.json()["urls"]["self"]


def test_waiting_ends_at_the_timeout(stack: Stack) -> None:
    started = time.monotonic()
    answer = post(stack, LONG, Prefer="wait=1")
    assert (answer.status_code, answer.headers["Preference-Applied"]) == (202, "wait=1")
    assert 1 <= time.monotonic() - started < 10
    assert "Retry-After" in answer.headers
    stack.http.post(f"/v1/jobs/{answer.json()['id']}/cancel")
    stack.wait(answer.json()["id"])


def test_a_repeated_request_may_wait_for_the_first_one(stack: Stack) -> None:
    key = str(uuid4())
    first = post(stack, Idempotency_Key=key).json()
    second = post(stack, Idempotency_Key=key, Prefer="wait=30")
    assert (second.status_code, second.json()["id"], second.json()["state"]) == (
        200,
        first["id"],
        "succeeded",
    )


@pytest.mark.parametrize(
    ("header", "value"), [("Idempotency-Key", "x" * 256), ("Cancel-After", "later")]
)
def test_malformed_headers_are_refused(stack: Stack, header: str, value: str) -> None:
    sent: dict[str, Any] = {header: value}
    answer = post(stack, **sent)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_header")
    assert header in answer.json()["detail"]


def test_deadline_and_trace_travel_with_the_job(stack: Stack) -> None:
    job = post(stack, Cancel_After="5m", traceparent=TRACE, X_Request_ID="req-77").json()
    assert (job["cancel_after_seconds"], job["traceparent"], job["request_id"]) == (
        300,
        TRACE,
        "req-77",
    )
    line = next(line for line in stack.log.read_text().splitlines() if job["id"] in line)
    assert "req-77" in line
    assert TRACE[3:35] in line
    assert post(stack, traceparent="nonsense").json()["traceparent"] == ""


# -- the transaction ------------------------------------------------------------------------------


def job_of(tenant: str, seconds: float = 1.5, **more: Any) -> Job:
    fields = {
        "task": "restore",
        "prior": "p",
        "spec": {},
        "inputs": {},
        "image_size": (1, 1),
        "output_size": (1, 1),
    }
    return Job.model_validate(
        {"id": new_job_id(), "tenant": tenant, "estimated_seconds": seconds, **fields, **more}
    )


def test_queued_jobs_are_limited_per_tenant(redis: Redis) -> None:
    store, terms = JobStore(redis), Terms(max_queued=2)
    first, second = job_of("a"), job_of("a")
    for job in (first, second):
        store.submit(job, terms)
    with pytest.raises(QuotaExceeded, match="2 of your jobs") as refused:
        store.submit(job_of("a"), terms)
    assert refused.value.retry_after == 2
    store.submit(job_of("b"), terms)
    store.claim(first.id, "w")
    store.submit(job_of("a"), terms)
    store.cancel(second.id)
    store.submit(job_of("a"), terms)
    assert len(store.page(tenant="a").jobs) == 4
    assert len(store.page(tenant="b").jobs) == 1


def test_running_jobs_are_limited_per_tenant(redis: Redis) -> None:
    store = JobStore(redis)
    first, second, other = (
        job_of("a", max_running=1),
        job_of("a", max_running=1),
        job_of("b", max_running=1),
    )
    for job in (first, second, other):
        store.submit(job)
    assert isinstance(store.claim(first.id, "w"), Claim)
    assert store.claim(second.id, "v") == "quota"
    assert isinstance(store.claim(other.id, "v"), Claim)
    again = store.claim(first.id, "w")
    assert isinstance(again, Claim), "a job taken over is no further job"
    store.succeed(again, [], {}, None)
    assert isinstance(store.claim(second.id, "v"), Claim)


def test_the_backlog_is_bounded_and_every_exit_reduces_it(redis: Redis) -> None:
    store, terms = JobStore(redis), Terms(max_backlog_seconds=10)
    jobs = [job_of("", seconds) for seconds in (4.125, 3.5, 2.9)]
    for job in jobs:
        store.submit(job, terms)
    with pytest.raises(QueueFull) as refused:
        store.submit(job_of("", 1), terms)
    assert refused.value.retry_after == 1
    claim = store.claim(jobs[0].id, "w")
    assert isinstance(claim, Claim)
    store.release(claim)
    assert redis.get("aps:backlog:p") == b"10525", "a job handed back is still to be done"
    claim = store.claim(jobs[0].id, "w")
    assert isinstance(claim, Claim)
    store.succeed(claim, [], {}, None)
    store.cancel(jobs[1].id)
    store.delete(jobs[1].id)
    store.delete(jobs[2].id)
    assert redis.get("aps:backlog:p") == b"0"


def test_a_store_that_refuses_writes_nothing(redis: Redis) -> None:
    store = JobStore(redis)
    store.submit(job_of("a"), Terms(max_queued=1))
    keys = sorted(redis.keys())
    with pytest.raises(QuotaExceeded):
        store.submit(job_of("a"), Terms(max_queued=1, idempotency_key="k", fingerprint="f"))
    assert sorted(redis.keys()) == keys
