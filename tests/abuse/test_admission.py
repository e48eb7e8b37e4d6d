"""Limits per API key: the response when one is exceeded, and fairness to other keys."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from redis import Redis

from service.jobs import Claim, Job, JobStore, new_job_id
from tests.abuse.attacked import Target
from tests.stack import png, uri

FIELDS = {"task": "restore", "prior": "embedded", "spec": {}, "inputs": {}}


def submitted(http: httpx.Client, **spec: Any) -> httpx.Response:
    """A small restoration, with whatever else ``spec`` says."""
    body = {"image": uri(png()), "operator": {"type": "denoise"}, "sigma": 0.1, **spec}
    return http.post("/v1/restore", json=body)


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), answer.text[:2000]
    assert len(answer.content) <= 64_000
    if status in (429, 503):
        assert int(answer.headers["retry-after"]) >= 1
    return problem


# -- scheduling ---------------------------------------------------------------------------------


def waiting(store: JobStore, tenant: str, number: int = 1, **changes: Any) -> list[Job]:
    jobs = [
        Job.model_validate({"id": new_job_id(), **FIELDS, "tenant": tenant, **changes})
        for _ in range(number)
    ]
    for job in jobs:
        store.submit(job)
    return jobs


def test_a_thousand_jobs_of_one_tenant_do_not_delay_others(redis: Redis) -> None:
    store = JobStore(redis)
    waiting(store, "many", 1000, estimated_seconds=1)
    others = {
        job.id: (tenant, place)
        for tenant in map(str, range(9))
        for place, job in enumerate(waiting(store, tenant, 5, estimated_seconds=1))
    }
    order = []
    for number in range(60):
        claim = store.take("embedded", f"worker {number}")
        assert claim is not None
        order.append(claim.job_id)
    for job_id, (tenant, place) in others.items():
        assert order.index(job_id) < 10 * (place + 1) + 1, (tenant, "waits a round for each job")


def test_computing_time_is_shared_equally_and_idle_tenants_gain_no_credit(redis: Redis) -> None:
    store = JobStore(redis)
    waiting(store, "long", 10, estimated_seconds=30)
    waiting(store, "short", 40, estimated_seconds=10)
    started = [store.get(claim.job_id) for claim in takes(store, 16)]
    by_tenant = [job.tenant for job in started if job is not None]
    assert abs(by_tenant.count("long") - 4) <= 1, "a job of 30 s counts as three of 10 s"
    waiting(store, "late", 20, estimated_seconds=10)
    following = [store.get(claim.job_id) for claim in takes(store, 14)]
    by_tenant = [job.tenant for job in following if job is not None]
    assert abs(by_tenant.count("late") - by_tenant.count("short")) <= 2, "a pause earns no turns"


def takes(store: JobStore, number: int) -> list[Claim]:
    claims = [store.take("embedded", new_job_id()) for _ in range(number)]
    return [claim for claim in claims if claim is not None]


def test_workers_skip_a_tenant_at_its_quota_however_many_jobs_it_has_queued(redis: Redis) -> None:
    store = JobStore(redis)
    full = waiting(store, "full", 300, max_running=1)
    (running,) = takes(store, 1)
    assert running.job_id == full[0].id
    (other,) = waiting(store, "other")
    assert [claim.job_id for claim in takes(store, 3)] == [other.id]
    store.succeed(running, [], {}, None)
    assert [claim.job_id for claim in takes(store, 3)] == [full[1].id], "there is room again"


def test_priorities_order_the_jobs_of_one_tenant_only(redis: Redis) -> None:
    store = JobStore(redis)
    (patient,) = waiting(store, "patient", estimated_seconds=1)
    (first, *_) = waiting(store, "pushy", 3, estimated_seconds=1)
    (urgent,) = waiting(store, "pushy", priority="high", estimated_seconds=1)
    order = [claim.job_id for claim in takes(store, 3)]
    assert set(order[:2]) == {patient.id, urgent.id}
    assert order[2] == first.id


def test_a_requeued_job_is_refunded_to_its_tenant(redis: Redis) -> None:
    store = JobStore(redis)
    (unlucky,) = waiting(store, "unlucky", estimated_seconds=100)
    waiting(store, "other", 3, estimated_seconds=1)
    claim = store.claim(unlucky.id, "a")
    assert isinstance(claim, Claim)
    assert len(takes(store, 1)) == 1
    store.release(claim)
    assert takes(store, 1)[0].job_id == unlucky.id


# -- work -----------------------------------------------------------------------------------------


def test_a_job_that_takes_too_long_is_refused_with_what_would_fit(target: Target) -> None:
    with target.client("attacker") as http:
        sampler = {"steps": 16, "inner_steps": 5000}
        image = uri(png(512, 512))
        problem = refused(submitted(http, image=image, sampler=sampler), 422, "job_too_long")
        assert "sampler.inner_steps" in problem["detail"]
        fitting = int(
            problem["detail"].partition("sampler.inner_steps ")[2].partition(",")[0].rstrip(".")
        )
        assert 0 < fitting < 5000
        smaller = {**sampler, "inner_steps": fitting}
        problem = refused(
            submitted(http, image=image, sampler={**smaller, "inner_steps": fitting + 1}),
            422,
            "job_too_long",
        )
        answer = submitted(http, image=image, sampler=smaller)
        assert answer.status_code == 202, answer.text
        http.delete(answer.json()["urls"]["self"])


def test_one_tenants_work_does_not_close_the_queue(fresh: Callable[..., Any]) -> None:
    with (
        fresh(max_own_backlog_seconds=1, max_backlog_seconds=100) as target,
        target.client("attacker") as attacker,
        target.client("victim") as victim,
    ):
        for _ in range(100):
            if (answer := submitted(attacker, prior="embedded")).status_code != 202:
                break
        assert "unfinished jobs" in refused(answer, 429, "quota_exceeded")["detail"]
        answer = submitted(victim, prior="embedded")
        assert answer.status_code == 202, answer.text


# -- requests, streams, bodies --------------------------------------------------------------------


def test_requests_are_rate_limited_and_headers_report_the_remainder(
    fresh: Callable[..., Any],
) -> None:
    with (
        fresh(requests_per_second=0.5, request_burst=5) as target,
        target.client("attacker") as attacker,
        target.client("victim") as victim,
    ):
        answers = [attacker.get("/v1/jobs") for _ in range(7)]
        assert [answer.status_code for answer in answers[:5]] == [200] * 5
        assert answers[0].headers["ratelimit-policy"] == '"requests";q=5;w=10'
        assert answers[0].headers["ratelimit"].startswith('"requests";r=4;t=')
        refused(answers[-1], 429, "rate_limited")
        assert answers[-1].headers["ratelimit"].startswith('"requests";r=0;t=')
        assert victim.get("/v1/jobs").status_code == 200, "each has a bucket of its own"
        time.sleep(int(answers[-1].headers["retry-after"]) + 0.1)
        assert attacker.get("/v1/jobs").status_code == 200


def test_streams_of_one_principal_are_counted_until_they_end(fresh: Callable[..., Any]) -> None:
    with (
        fresh(max_streams=2) as target,
        target.client("attacker") as attacker,
        target.client("victim") as victim,
    ):
        events = submitted(attacker).json()["urls"]["events"]
        others = submitted(victim).json()["urls"]["events"]
        with attacker.stream("GET", events), attacker.stream("GET", events):
            refused(attacker.get(events), 429, "too_many_streams")
            answer = attacker.post(
                "/v1/restore",
                json={"image": uri(png()), "operator": {"type": "denoise"}, "sigma": 0.1},
                headers={"Prefer": "wait=30"},
            )
            assert answer.status_code == 202, "it is stored, and not waited for"
            assert "preference-applied" not in answer.headers
            with victim.stream("GET", others) as stream:
                assert stream.status_code == 200
        deadline = time.monotonic() + 30
        while True:
            with attacker.stream("GET", events) as stream:
                if stream.status_code == 200:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)


def slow_body(target: Target, sent: bytes, announced: int) -> socket.socket:
    """A submission whose body stops after ``sent``."""
    place = urlsplit(target.url)
    connection = socket.create_connection((place.hostname, place.port), timeout=30)
    head = (
        f"POST /v1/restore HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {announced}\r\n"
        f"Content-Type: application/json\r\nAuthorization: Bearer {target.tokens['attacker']}\r\n"
        "\r\n"
    )
    connection.sendall(head.encode() + sent)
    return connection


def answer_to(connection: socket.socket) -> bytes:
    with connection:
        return connection.recv(100)


def start_of_answer(connection: socket.socket) -> bytes:
    """Protocol and status; nothing if the server closed the connection with bytes unread."""
    try:
        return connection.recv(12)
    except ConnectionResetError:
        return b""


def test_a_body_that_stops_or_trickles_is_ended(fresh: Callable[..., Any]) -> None:
    with fresh(body_seconds=1.5, body_pause_seconds=0.5) as target:
        assert b" 408 " in answer_to(slow_body(target, b"{", 1000))
        trickle, started = slow_body(target, b"{", 1000), time.monotonic()
        trickle.settimeout(0.2)
        answer = b""
        while not answer:
            assert time.monotonic() - started < 30
            trickle.sendall(b" ")
            try:
                answer = trickle.recv(100)
            except TimeoutError:
                continue
        trickle.close()
        assert b" 408 " in answer
        with target.client("attacker") as http:
            assert submitted(http).status_code == 202


def test_bodies_are_read_at_a_rate_and_waiting_for_it_is_not_the_clients_fault(
    fresh: Callable[..., Any],
) -> None:
    with (
        fresh(body_bytes_per_second=2_000_000, body_seconds=1.5) as target,
        target.client("attacker") as attacker,
        target.client("victim") as victim,
        ThreadPoolExecutor() as pool,
    ):
        started = time.monotonic()
        sent = pool.submit(submitted, attacker, x="x" * 6_000_000)
        answer = submitted(victim, prior="embedded")
        assert answer.status_code == 202, answer.text
        assert not sent.done()
        refused(sent.result(), 413, "body_too_large")  # of the JSON's text, once it is complete
        assert time.monotonic() - started > 2.5


def test_stalled_bodies_hold_a_share_of_the_memory(fresh: Callable[..., Any]) -> None:
    limits = {"max_upload_bytes": 1_000_000, "max_bodies_bytes": 7_500_000, "body_pause_seconds": 9}
    with fresh(**limits) as target, target.client("victim") as victim:
        stalled = [slow_body(target, b" " * 1_200_000, 1_300_000) for _ in range(6)]
        # Which of them are refused depends on how their bytes interleave.
        answers: dict[socket.socket, bytes] = {}
        while len(answers) < 4:
            silent = [connection for connection in stalled if connection not in answers]
            ready, _, _ = select.select(silent, [], [], limits["body_pause_seconds"])
            assert ready, "one principal's bodies may take a third of the memory: two of these six"
            for connection in ready:
                answers[connection] = start_of_answer(connection)
        assert set(answers.values()) <= {b"HTTP/1.1 503", b""}
        assert b"HTTP/1.1 503" in answers.values()
        answer = submitted(victim, prior="embedded")
        assert answer.status_code == 202, answer.text
        for connection in stalled:
            connection.close()


# -- JSON -----------------------------------------------------------------------------------------


def test_thousands_of_unknown_fields_are_counted_not_listed(target: Target) -> None:
    with target.client("attacker") as http:
        fields = {f"field {number} " + 200 * "ü": "secret" for number in range(1000)}
        problem = refused(submitted(http, **fields), 422, "invalid_spec")
        assert len(problem["errors"]) == 20
        assert problem["detail"].startswith("1000 fields are invalid")
        assert "secret" not in json.dumps(problem)
        refused(submitted(http, **{str(n): n for n in range(20_000)}), 413, "body_too_large")
        refused(submitted(http, x=[[]] * 20_000), 413, "body_too_large")
        refused(submitted(http, x="x" * 1_100_000), 413, "body_too_large")
        problem = refused(submitted(http, operator={"type": "x" * 9999}), 422, "invalid_spec")
        assert "x" * 1000 not in json.dumps(problem)


@pytest.mark.parametrize(
    "events", [["job.completed"] * 2, ["job.progress"] * 300_000, [], ["job.unknown"]]
)
def test_kinds_of_messages_are_named_once(target: Target, events: list[str]) -> None:
    webhook = {"url": "https://example.com/hook", "events": events}
    with target.client("attacker") as http:
        assert submitted(http, webhook=webhook).status_code in (413, 422)


# -- storage --------------------------------------------------------------------------------------


def test_stored_bytes_are_counted_and_released(fresh: Callable[..., Any]) -> None:
    with (
        fresh(max_stored_bytes=20_000) as target,
        target.client("attacker") as attacker,
        target.client("victim") as victim,
    ):
        jobs = []
        while (answer := submitted(attacker)).status_code == 202:
            jobs.append(answer.json())
            assert len(jobs) < 100
        refused(answer, 429, "storage_quota_exceeded")
        sizes = [sum(artifact["bytes"] for artifact in job["artifacts"]) for job in jobs]
        assert sum(sizes) <= 20_000 < sum(sizes) + sizes[0], "as stored, not as sent"
        picture = attacker.post("/v1/files", content=png(), headers={"Content-Type": "image/png"})
        refused(picture, 429, "storage_quota_exceeded")
        answer = submitted(victim, prior="embedded")
        assert answer.status_code == 202, answer.text
        assert attacker.delete(jobs[0]["urls"]["self"]).status_code == 204
        assert submitted(attacker).status_code == 202


def test_deleted_and_expired_jobs_leave_no_keys(redis: Redis) -> None:
    store = JobStore(redis)
    hook = {"url": "https://example.com", "events": ["job.started", "job.completed"]}
    picture = {"name": "m.png", "file": f"{64 * 'a'}.png", "media_type": "image/png", "bytes": 70}
    fields = {"webhook": hook, "inputs": {"image": picture}}
    deleted, expired = waiting(store, "t", 2, **fields)
    for job in (deleted, expired):
        claim = store.claim(job.id, "w")
        assert isinstance(claim, Claim)
        store.succeed(claim, [], {}, None)
    assert redis.zcard("aps:webhooks:due") == 4
    assert redis.hget("aps:stored:t", "total") == b"140"
    assert store.delete(deleted.id) == "deleted"
    assert redis.hget("aps:stored:t", "total") == b"70"
    assert redis.zcard("aps:webhooks:due") == 2
    for due in ("files:due", "records:due"):
        redis.zadd(f"aps:{due}", {f"{expired.id} t": 1})
    store.forget_expired()
    keys: Any = redis.keys("aps:*")
    kept = {key.decode() for key in keys if deleted.id.encode() in key}
    assert kept == set()
    assert not redis.exists("aps:stored:t", "aps:jobs:t", "aps:files:due", "aps:records:due")
    assert not redis.exists("aps:queue:embedded:t", "aps:turns:embedded", "aps:backlog:of:t")
