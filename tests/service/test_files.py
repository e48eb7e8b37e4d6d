"""Files of a job over HTTP: ranges, conditional requests, hashes, expiry."""

from __future__ import annotations

import base64
import hashlib
import time
from typing import Any

import pytest
from redis import Redis

from tests.stack import Stack


@pytest.fixture(scope="module")
def job(running_stack: Stack) -> dict[str, Any]:
    running_stack.ensure_worker()
    submitted = running_stack.submit(sampler={"steps": 1, "inner_steps": 1})
    return running_stack.wait(submitted["id"])


def url(job: dict[str, Any], name: str = "result.png") -> str:
    return next(artifact["url"] for artifact in job["artifacts"] if artifact["name"] == name)


def test_files_are_served_with_their_hash(stack: Stack, job: dict[str, Any]) -> None:
    for artifact in job["artifacts"]:
        answer = stack.http.get(artifact["url"])
        digest = hashlib.sha256(answer.content)
        assert artifact["sha256"] == digest.hexdigest()
        assert answer.headers["ETag"] == f'"{digest.hexdigest()}"'
        assert (
            answer.headers["Repr-Digest"]
            == f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"
        )
        assert int(answer.headers["Content-Length"]) == artifact["bytes"]


def test_parts_of_a_file(stack: Stack, job: dict[str, Any]) -> None:
    whole = stack.http.get(url(job))
    assert whole.headers["Accept-Ranges"] == "bytes"
    for header, part in (
        ("bytes=0-9", whole.content[:10]),
        ("bytes=100-", whole.content[100:]),
        ("bytes=-7", whole.content[-7:]),
    ):
        answer = stack.http.get(url(job), headers={"Range": header})
        assert (answer.status_code, answer.content) == (206, part)
        first = whole.content.index(part)
        assert (
            answer.headers["Content-Range"]
            == f"bytes {first}-{first + len(part) - 1}/{len(whole.content)}"
        )
        assert answer.headers["ETag"] == whole.headers["ETag"]
    beyond = stack.http.get(url(job), headers={"Range": "bytes=99999999-"})
    assert (beyond.status_code, beyond.json()["code"]) == (416, "range_not_satisfiable")
    assert beyond.headers["Content-Range"] == f"bytes */{len(whole.content)}"


def test_if_range_with_another_version_returns_the_whole_file(
    stack: Stack, job: dict[str, Any]
) -> None:
    etag = stack.http.get(url(job)).headers["ETag"]
    assert (
        stack.http.get(url(job), headers={"Range": "bytes=0-9", "If-Range": '"other"'}).status_code
        == 200
    )
    assert (
        stack.http.get(url(job), headers={"Range": "bytes=0-9", "If-Range": etag}).status_code
        == 206
    )
    assert (
        stack.http.get(url(job), headers={"Range": "bytes=0-9", "If-None-Match": etag}).status_code
        == 304
    )


def test_an_unchanged_file_or_job_is_not_sent_again(stack: Stack, job: dict[str, Any]) -> None:
    for address in (
        url(job),
        url(job, "measurement.png"),
        job["urls"]["self"],
        job["urls"]["previews"].format(step=1),
    ):
        etag = stack.http.get(address).headers["ETag"]
        for sent in (etag, f'"x", W/{etag}', "*"):
            answer = stack.http.get(address, headers={"If-None-Match": sent})
            assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", etag)
        assert stack.http.get(address, headers={"If-None-Match": '"x"'}).status_code == 200


def test_a_jobs_etag_changes_with_it(stack: Stack) -> None:
    job = stack.submit(sampler={"steps": 2, "inner_steps": 1})
    before = stack.http.get(job["urls"]["self"]).headers["ETag"]
    early = stack.http.get(f"{job['urls']['self']}/artifacts/result.png")
    version = stack.wait(job["id"])["version"]
    assert early.status_code == 404
    assert early.json()["detail"].endswith((" yet; it is queued.", " yet; it is running."))
    after = stack.http.get(job["urls"]["self"], headers={"If-None-Match": before})
    assert (after.status_code, after.headers["ETag"]) == (200, f'"{version}"')


def test_expired_jobs_are_gone_and_later_unknown(stack: Stack) -> None:
    job = stack.wait(stack.submit(sampler={"steps": 1, "inner_steps": 1})["id"])
    addresses = [url(job), job["urls"]["previews"].format(step=1)]
    with Redis.from_url(stack.settings.redis_url) as redis:
        redis.hset(f"aps:job:{job['id']}", "expires_at", time.time() - 1)
        for address in addresses:
            answer = stack.http.get(address)
            assert (answer.status_code, answer.json()["code"]) == (410, "expired")
        assert stack.http.get(job["urls"]["self"]).json()["state"] == "succeeded", (
            "the record outlives its files"
        )
        redis.delete(f"aps:job:{job['id']}")
    for address in (*addresses, job["urls"]["self"]):
        assert stack.http.get(address).status_code == 404


def test_lists_are_paged_by_links(stack: Stack) -> None:
    jobs = [stack.submit(sampler={"steps": 1, "inner_steps": 1})["id"] for _ in range(5)]
    for job in jobs:
        stack.wait(job)
    seen, address = [], "/v1/jobs?limit=2"
    while address and not set(jobs) <= set(seen):
        page = stack.http.get(address).json()
        assert len(page["jobs"]) <= 2
        seen += [job["id"] for job in page["jobs"]]
        address = page["next"]
    assert seen[:5] == jobs[::-1]
    assert len(seen) == len(set(seen))
