"""A link to a result gives access to that result only, and ends as promised."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from redis import Redis

from aps_cli.main import main
from aps_client import Client, Connection
from service.access.links import MAX_LINKS, digest, new_token
from service.jobs import JobStore
from service.telemetry.logs import scrub
from tests.apis import running_api
from tests.service.test_keys import routes
from tests.stack import Stack, png

QUICK = {"operator": {"type": "denoise"}, "sigma": 0.1, "sampler": {"steps": 2, "inner_steps": 1}}
Sent = dict[str, str]


def submitted(http: httpx.Client, sent: Sent, wait: int = 60, **spec: Any) -> dict[str, Any]:
    """Submits a small job and waits for it."""
    answer = http.post(
        "/v1/restore",
        files={"image": png()},
        data={"spec": json.dumps(QUICK | spec)},
        headers={"Prefer": f"wait={wait}", **sent},
        timeout=90,
    )
    job: dict[str, Any] = answer.json()
    return job


@pytest.fixture(scope="module")
def ann(tokens: dict[str, str]) -> Sent:
    return {"Authorization": f"Bearer {tokens['ann']}"}


@pytest.fixture(scope="module")
def job(guarded: httpx.Client, ann: Sent) -> dict[str, Any]:
    """Ann's finished job."""
    job = submitted(guarded, ann)
    assert job["state"] == "succeeded", job
    return job


@pytest.fixture
def store(running_stack: Stack) -> Iterator[JobStore]:
    with Redis.from_url(running_stack.settings.redis_url) as redis:
        yield JobStore(redis)


def shared(http: httpx.Client, job: dict[str, Any], sent: Sent, **wanted: int) -> tuple[str, Sent]:
    """Makes a link; returns its address, and the header that a guest sends."""
    answer = http.post(job["urls"]["share"], json=wanted, headers=sent)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    url = answer.json()["url"]
    assert url.startswith(f"/shared.html#{job['id']}/")
    return url, {"Authorization": f"Bearer {url.rpartition('/')[2]}"}


def statuses(http: httpx.Client, job_id: str, guest: Sent) -> set[int]:
    """Statuses of everything that a link opens."""
    paths = ("", "/steps", "/previews/1", "/artifacts/result.png")
    return {http.get(f"/v1/shared/{job_id}{path}", headers=guest).status_code for path in paths}


def test_a_guest_without_a_key_reads_the_result(
    guarded: httpx.Client, ann: Sent, job: dict[str, Any]
) -> None:
    _, guest = shared(guarded, job, ann)
    seen = guarded.get(f"/v1/shared/{job['id']}", headers=guest).json()
    assert seen["spec"] == job["spec"]
    assert seen["metrics"] == job["metrics"]
    own = {file["name"]: file["sha256"] for file in job["artifacts"]}
    assert {file["name"]: file["sha256"] for file in seen["artifacts"]} == own
    assert not {"request_id", "traceparent", "priority", "webhook"} & seen.keys()
    assert "/v1/jobs" not in json.dumps(seen), "links that a guest cannot follow"
    for file in seen["artifacts"]:
        answer = guarded.get(file["url"], headers=guest)
        mine = guarded.get(file["url"].replace("/shared/", "/jobs/"), headers=ann)
        assert answer.content == mine.content
    steps = guarded.get(seen["urls"]["steps"], headers=guest).json()
    assert [step["step"] for step in steps] == [1, 2]
    assert guarded.get(steps[0]["preview_url"], headers=guest).content[:2] == b"\xff\xd8"


def test_a_link_opens_nothing_else(guarded: httpx.Client, ann: Sent, job: dict[str, Any]) -> None:
    other = submitted(guarded, ann, seed=1)
    _, guest = shared(guarded, job, ann)
    shared(guarded, other, ann)
    assert statuses(guarded, job["id"], guest) == {200}
    cookie = {"Cookie": f"aps_link={guest['Authorization'].removeprefix('Bearer ')}"}
    session = cookie["Cookie"].replace("aps_link=", "aps_session=", 1)
    as_session = {"Cookie": session, "Origin": str(guarded.base_url).rstrip("/")}
    for sent in (guest, cookie, as_session):
        assert statuses(guarded, other["id"], sent) == {401}
        for method, path in routes(guarded, job["id"]):
            if not path.startswith("/v1/shared/"):
                answer = guarded.request(method, path, headers=sent)
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), path
                assert answer.headers["Content-Type"] == "application/problem+json"
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert guarded.request(method, f"/v1/shared/{job['id']}", headers=guest).status_code == 405
    assert guarded.get(f"/v1/shared/{job['id']}/artifacts/x", headers=guest).status_code == 404
    assert statuses(guarded, job["id"], ann) == {401}, "a key is not a link"
    assert guarded.get(job["urls"]["self"], headers=ann).status_code == 200, "nothing was deleted"


def test_the_cookie_is_valid_for_this_result_only(
    guarded: httpx.Client, ann: Sent, job: dict[str, Any]
) -> None:
    _, guest = shared(guarded, job, ann)
    for origin, secure in (("http://127.0.0.1", False), ("https://aps.example", True)):
        answer = guarded.post(
            f"/v1/shared/{job['id']}/session", headers={"Origin": origin, **guest}
        )
        guarded.cookies.clear()
        assert answer.status_code == 204
        cookie = SimpleCookie(answer.headers["set-cookie"])["aps_link"]
        assert cookie["path"] == f"/v1/shared/{job['id']}"
        assert (cookie["httponly"], cookie["samesite"]) == (True, "strict")
        assert bool(cookie["secure"]) is secure
        assert 0 < int(cookie["max-age"]) <= 86_400
        assert statuses(guarded, job["id"], {"Cookie": f"aps_link={cookie.value}"}) == {200}


def test_links_end_when_they_are_revoked_or_their_job_is_deleted(
    guarded: httpx.Client, ann: Sent, tokens: dict[str, str]
) -> None:
    job = submitted(guarded, ann)
    guests = [shared(guarded, job, ann)[1] for _ in range(2)]
    until = guarded.get(job["urls"]["self"], headers=ann).json()["shared_until"]
    assert until is not None
    bob = {"Authorization": f"Bearer {tokens['bob']}"}
    assert guarded.delete(job["urls"]["share"], headers=bob).status_code == 404
    assert [statuses(guarded, job["id"], guest) for guest in guests] == [{200}, {200}]
    assert guarded.delete(job["urls"]["share"], headers=ann).status_code == 204
    assert guarded.get(job["urls"]["self"], headers=ann).json()["shared_until"] is None
    assert [statuses(guarded, job["id"], guest) for guest in guests] == [{401}, {401}]
    _, third = shared(guarded, job, ann)
    assert guarded.delete(job["urls"]["self"], headers=ann).status_code == 204
    assert statuses(guarded, job["id"], third) == {401}


def test_a_link_ends_after_its_lifetime_and_with_the_files(
    guarded: httpx.Client, ann: Sent, job: dict[str, Any], store: JobStore
) -> None:
    now = datetime.now(UTC)
    soon = guarded.post(job["urls"]["share"], json={"seconds": 3600}, headers=ann).json()
    ends = datetime.fromisoformat(soon["expires_at"])
    assert timedelta(minutes=59) < ends - now < timedelta(minutes=62)
    longest = guarded.post(job["urls"]["share"], headers=ann).json()
    assert longest["expires_at"] == job["expires_at"], "a day, not a week"
    for seconds in (1, 10**9, "soon"):
        refused = guarded.post(job["urls"]["share"], json={"seconds": seconds}, headers=ann)
        assert refused.status_code == 422

    token = new_token()
    store.share(job["id"], digest(token), 0.2, MAX_LINKS)
    time.sleep(0.5)
    assert statuses(guarded, job["id"], {"Authorization": f"Bearer {token}"}) == {401}


def test_a_body_that_is_not_utf_8_is_refused_as_documented(
    guarded: httpx.Client, ann: Sent, job: dict[str, Any]
) -> None:
    kind = {"Content-Type": "application/json"}
    refused = guarded.post(job["urls"]["share"], content=b'{"seconds": "\xff"}', headers=ann | kind)
    assert refused.status_code == 400
    assert refused.json()["code"] == "malformed_body"
    described = json.loads((Path(__file__).parents[2] / "docs/openapi.json").read_text())
    assert "400" in described["paths"]["/v1/jobs/{job_id}/share"]["post"]["responses"]


def test_the_number_of_links_is_limited(
    guarded: httpx.Client, ann: Sent, job: dict[str, Any]
) -> None:
    guarded.delete(job["urls"]["share"], headers=ann)
    for _ in range(MAX_LINKS):
        shared(guarded, job, ann, seconds=60)
    refused = guarded.post(job["urls"]["share"], headers=ann)
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_links")
    assert 0 < int(refused.headers["Retry-After"]) <= 60
    guarded.delete(job["urls"]["share"], headers=ann)
    shared(guarded, job, ann)


def test_only_results_can_be_shared(guarded: httpx.Client, ann: Sent) -> None:
    running = submitted(guarded, ann, 0, sampler={"steps": 64, "inner_steps": 40})
    refused = guarded.post(running["urls"]["share"], headers=ann)
    assert (refused.status_code, refused.json()["code"]) == (409, "no_result")
    guarded.post(running["urls"]["cancel"], headers=ann)


def test_a_service_may_refuse_links(
    running_stack: Stack, ann: Sent, job: dict[str, Any], tmp_path: Path
) -> None:
    with running_api(
        running_stack.settings, tmp_path / "log", auth="keys", max_share_seconds=0
    ) as http:
        refused = http.post(job["urls"]["share"], headers=ann)
        assert (refused.status_code, refused.json()["code"]) == (403, "sharing_disabled")


def test_tokens_are_neither_stored_nor_logged(
    guarded: httpx.Client, ann: Sent, job: dict[str, Any], store: JobStore, log: Path
) -> None:
    url, guest = shared(guarded, job, ann)
    token = url.rpartition("/")[2]
    assert statuses(guarded, job["id"], guest) == {200}
    assert "GET /v1/shared/{job_id}: 200" in log.read_text()
    assert token not in log.read_text()
    assert token not in scrub(f"GET /shared.html#{job['id']}/{token}")
    for name in store.redis.scan_iter("*"):
        assert token.encode() not in (store.redis.dump(name) or b"") + name


def test_the_command_line_prints_a_link_and_ends_it(
    guarded: httpx.Client, tokens: dict[str, str], job: dict[str, Any]
) -> None:
    server = ["--server", str(guarded.base_url), "--api-key", tokens["ann"]]
    made = CliRunner().invoke(main, ["jobs", "share", job["id"], "--hours", "2", *server])
    assert made.exit_code == 0, made.output
    url = made.stdout.strip()
    assert url.startswith(f"{str(guarded.base_url).rstrip('/')}/shared.html#{job['id']}/")
    guest = {"Authorization": f"Bearer {url.rpartition('/')[2]}"}
    assert statuses(guarded, job["id"], guest) == {200}
    ended = CliRunner().invoke(main, ["jobs", "share", job["id"], "--end", *server])
    assert ended.exit_code == 0, ended.output
    assert statuses(guarded, job["id"], guest) == {401}


def test_the_client_makes_and_ends_links(
    guarded: httpx.Client, tokens: dict[str, str], job: dict[str, Any]
) -> None:
    with Client(Connection(server=str(guarded.base_url), api_key=tokens["ann"])) as client:
        client.unshare(job["id"])
        link = client.share(job["id"], lifetime=600)
        token = link.url.rpartition("/")[2]
        guest = {"Authorization": f"Bearer {token}"}
        assert statuses(guarded, job["id"], guest) == {200}
        client.unshare(job["id"])
        assert statuses(guarded, job["id"], guest) == {401}
