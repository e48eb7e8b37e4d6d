"""API keys: required, limited to the client's own data, never stored or logged in clear text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from redis import Redis

from aps_cli.main import main
from service.access.keys import KeyRefused, KeyStore, Scope, new_key
from service.settings import Settings
from service.telemetry.logs import scrub
from service.webhooks.sender import secret_for
from tests.apis import register_idle_worker, running_api
from tests.stack import Stack, png, uri

ALL: frozenset[Scope] = frozenset({"read", "write"})
UNKNOWN = "01900000-0000-7000-8000-000000000000"
QUICK = {"operator": {"type": "denoise"}, "sigma": 0.1, "sampler": {"steps": 2, "inner_steps": 1}}
As = Callable[[str], dict[str, str]]


@pytest.fixture
def by(tokens: dict[str, str]) -> As:
    return lambda name: {"Authorization": f"Bearer {tokens[name]}"}


def submit(http: httpx.Client, **headers: str) -> httpx.Response:
    return http.post(
        "/v1/restore", files={"image": png()}, data={"spec": json.dumps(QUICK)}, headers=headers
    )


def routes(
    http: httpx.Client, job_id: str = UNKNOWN, delivery_id: str = UNKNOWN
) -> Iterator[tuple[str, str]]:
    """All operations under /v1, with ids filled in."""
    for path, operations in http.get("/openapi.json").json()["paths"].items():
        filled = path.format(
            job_id=job_id,
            delivery_id=delivery_id,
            batch_id=UNKNOWN,
            step=1,
            name="result.png",
            model="embedded_text",
        )
        for method in operations:
            if path.startswith("/v1/"):
                yield method, filled


def test_every_route_requires_a_valid_key(guarded: httpx.Client, tokens: dict[str, str]) -> None:
    wrong = [
        "",
        "Bearer",
        "Bearer x",
        f"Bearer {tokens['ann'][:-1]}",
        f"Bearer {tokens['ann'][:-2]}xx",
        f"Basic {tokens['ann']}",
        tokens["ann"],
    ]
    found = list(routes(guarded))
    assert len(found) >= 9
    for method, path in found:
        for sent in wrong:
            answer = guarded.request(method, path, headers={"Authorization": sent} if sent else {})
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), (
                method,
                path,
                sent,
            )
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_public_routes_need_no_key(guarded: httpx.Client) -> None:
    for path in ("/livez", "/readyz", "/", "/studio.js", "/openapi.json"):
        assert guarded.get(path).status_code == 200, path


def test_scopes_limit_what_a_key_allows(guarded: httpx.Client, by: As) -> None:
    assert guarded.get("/v1/jobs", headers=by("reader")).json() == {"jobs": [], "next": None}
    for method, path in routes(guarded):
        # an estimate stores nothing; a link to a result has its own rights
        if (
            method != "get"
            and path != "/v1/session"
            and not path.endswith("/estimate")
            and not path.startswith("/v1/shared/")
        ):
            answer = guarded.request(method, path, headers=by("reader"))
            assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope"), path


def test_jobs_of_other_clients_are_not_found(guarded: httpx.Client, stack: Stack, by: As) -> None:
    spec = {**QUICK, "image": uri(png()), "webhook": {"url": "http://127.0.0.1:9/"}}
    job = guarded.post("/v1/restore", json=spec, headers={**by("ann"), "Prefer": "wait=30"}).json()
    assert job["state"] == "succeeded"
    [delivery] = [
        sent["id"]
        for sent in guarded.get(f"/v1/jobs/{job['id']}/webhooks", headers=by("ann")).json()
    ]
    operations = [
        (method, path)
        for method, path in routes(guarded, job["id"], delivery)
        if job["id"] in path and not path.startswith("/v1/shared/")
    ]
    # deletions last, that of the job after those of what belongs to it
    operations.sort(key=lambda operation: (operation[0] == "delete", -len(operation[1])))
    assert len(operations) >= 8, "every route that takes an id"
    for method, path in operations:
        refused = guarded.request(method, path, headers=by("bob"))
        absent = guarded.request(method, path.replace(job["id"], UNKNOWN), headers=by("bob"))
        assert refused.status_code == absent.status_code == 404, path
        told, blank = ({**answer.json(), "request_id": ""} for answer in (refused, absent))
        assert json.dumps(told).replace(job["id"], UNKNOWN) == json.dumps(blank), (
            "nothing gives away that the job exists"
        )
        assert stack.http.request(method, path).status_code == 404, "neither to those without a key"
    for cursor in ("", f"?cursor={job['id'][:-1]}f"):
        listed = guarded.get(f"/v1/jobs{cursor}", headers=by("bob")).json()["jobs"]
        assert job["id"] not in [each["id"] for each in listed]
    assert job["id"] not in stack.http.get("/v1/jobs?limit=100").text
    mine = guarded.get("/v1/jobs", headers=by("ann")).json()["jobs"]
    assert job["id"] in [each["id"] for each in mine]
    for method, path in operations:
        assert guarded.request(method, path, headers=by("ann")).status_code in (
            200,
            201,
            202,
            204,
        ), path


def test_pictures_of_other_clients_are_not_found(guarded: httpx.Client, by: As) -> None:
    answer = guarded.post(
        "/v1/files", content=png(48, 48), headers={"Content-Type": "image/png", **by("ann")}
    )
    body = {**QUICK, "image": f"sha256:{answer.json()['sha256']}"}
    assert guarded.post("/v1/restore", json=body, headers=by("ann")).status_code == 202
    others = guarded.post("/v1/restore", json=body, headers=by("bob"))
    assert (others.status_code, others.json()["code"]) == (422, "unknown_picture")


def test_idempotency_keys_are_separate_per_client(guarded: httpx.Client, by: As) -> None:
    ids = {
        submit(guarded, **by(name), **{"Idempotency-Key": "same"}).json()["id"]
        for name in ("ann", "bob")
    }
    assert len(ids) == 2


def test_keys_can_be_rotated_without_downtime(guarded: httpx.Client, running_stack: Stack) -> None:
    with Redis.from_url(running_stack.settings.redis_url) as redis:
        store = KeyStore(redis)
        old, second, third = (new_key("carol", ALL) for _ in range(3))
        store.add(old[1])
        store.add(second[1])
        with pytest.raises(KeyRefused, match="2 active keys"):
            store.add(third[1])
        sent = [{"Authorization": f"Bearer {token}"} for token, _ in (old, second)]
        job = submit(guarded, **sent[0]).json()["id"]
        assert guarded.get(f"/v1/jobs/{job}", headers=sent[1]).status_code == 200, (
            "jobs belong to the principal"
        )
        assert store.revoke(old[1].id)
        assert not store.revoke(old[1].id)
        assert guarded.get("/v1/jobs", headers=sent[0]).status_code == 401
        assert guarded.get(f"/v1/jobs/{job}", headers=sent[1]).status_code == 200


def test_secrets_are_neither_stored_nor_logged(
    guarded: httpx.Client, running_stack: Stack, tokens: dict[str, str], log: Path
) -> None:
    for token in tokens.values():
        guarded.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"})
        guarded.get(
            f"/v1/{token}",
            params={"key": token},
            headers={"X-Request-ID": token, "Idempotency-Key": token},
        )
        submit(
            guarded,
            Authorization=f"Bearer {token}",
            **{"Idempotency-Key": token, "Cancel-After": token},
        )
    written = log.read_text()
    assert "GET /v1/jobs: 200" in written, written
    with Redis.from_url(running_stack.settings.redis_url) as redis:
        stored = [redis.dump(key) + key for key in redis.scan_iter("*")]
    for token in tokens.values():
        secret = token.split("_", 2)[2][:20]
        assert secret not in written
        assert not any(secret.encode() in value for value in stored)


def test_secrets_are_removed_from_the_log() -> None:
    token = new_key("x", ALL)[0]
    text = (
        f"redis://user:hunter2@h:1/0 rediss://:hunter2@h Authorization: Bearer hunter2, key {token}"
    )
    assert "hunter2" not in scrub(text)
    assert scrub(f"signed with {secret_for('master', 'ann')}.") == "signed with whsec_***."
    assert token[:16] in scrub(text)
    assert token not in scrub(text)
    assert scrub("nothing to hide: a@b") == "nothing to hide: a@b"


# -- quotas ---------------------------------------------------------------------------------------


def test_quotas_and_a_full_queue_send_retry_after(running_stack: Stack, tmp_path: Path) -> None:
    settings = running_stack.settings.model_copy(update={"key_prefix": "quota:"})
    token, key = new_key("ann", ALL, max_queued=2)
    other, other_key = new_key("bob", ALL)
    with Redis.from_url(settings.redis_url) as redis:
        store = KeyStore(redis, "quota:")
        store.add(key)
        store.add(other_key)
    with running_api(settings, tmp_path / "log", auth="keys") as http:
        register_idle_worker(settings)
        sent = {"Authorization": f"Bearer {token}"}
        assert [submit(http, **sent).status_code for _ in range(2)] == [202, 202]
        answer = submit(http, **sent)
        assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (
            429,
            "quota_exceeded",
            True,
        )
        assert int(answer.headers["Retry-After"]) >= 1
        predicted = http.get("/v1/jobs", headers=sent).json()["jobs"][0]["estimated_seconds"]
    with running_api(
        settings, tmp_path / "log", auth="keys", max_backlog_seconds=2.5 * predicted
    ) as http:
        register_idle_worker(settings)
        assert submit(http, Authorization=f"Bearer {other}").status_code == 202
        answer = submit(http, Authorization=f"Bearer {other}")
        assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (
            503,
            "queue_full",
            True,
        )
        assert int(answer.headers["Retry-After"]) >= 1


# -- creation of keys, and when they are required
# ----------------------------------------------


def test_the_command_line_creates_lists_and_revokes_keys(redis: Redis, redis_url: str) -> None:
    def aps(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, ["keys", *words], env={"APS_REDIS_URL": redis_url})
        assert done.exit_code == code, done.output
        return done.output

    token = aps("create", "team-a", "--scope", "read", "--max-queued", "3").strip()
    key = KeyStore(redis).find(token)
    assert key is not None
    assert (key.principal, key.scopes, key.max_queued) == ("team-a", {"read"}, 3)
    shown = aps("list")
    assert f"{key.id}  team-a" in shown
    assert token not in shown
    assert "revoked" in aps("revoke", key.id)
    assert KeyStore(redis).find(token) is None
    assert "no key" in aps("revoke", key.id, code=1)
    assert "principal" in aps("create", "a b", code=1)


def test_keys_can_be_read_from_a_file(redis: Redis, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["keys", "create", "ops", "--record"], env={"APS_REDIS_URL": "redis://127.0.0.1:1"}
    )
    token, record = done.output.splitlines()
    file = tmp_path / "keys.json"
    file.write_text(f"[{record}]")
    store = KeyStore(redis, file=file)
    assert [key.principal for key in store.all()] == ["ops"]
    found = store.find(token)
    assert found is not None
    assert found.scopes == ALL
    file.write_text(f"[{record},{record},{record}]")
    with pytest.raises(KeyRefused, match="at most 2"):
        KeyStore(redis, file=file)
    other = new_key("dev", ALL)[1].model_dump_json()
    file.write_text(f"{record}\n\n{other}\n")
    assert [key.principal for key in KeyStore(redis, file=file).all()] == ["dev", "ops"]
    for wrong in ("{}", done.output, "\x00", '{"id": 5}'):
        file.write_text(wrong)
        with pytest.raises(KeyRefused, match="cannot be read: it must hold records") as refused:
            KeyStore(redis, file=file)
        assert len(str(refused.value).splitlines()) == 1
        assert token not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({}, False),
        ({"host": "localhost"}, False),
        ({"host": "::1"}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "api.example"}, True),
        ({"host": "0.0.0.0", "auth": "none"}, False),
        ({"auth": "keys"}, True),
    ],
)
def test_keys_are_required_off_loopback(settings: dict[str, Any], needed: bool) -> None:
    assert Settings(**settings).auth_required is needed


def test_the_api_refuses_to_start_without_keys_off_loopback(
    redis: Redis, settings: Settings, tmp_path: Path
) -> None:
    with (
        pytest.raises(AssertionError, match="requires API keys, but none exists"),
        running_api(settings, tmp_path / "log", host="0.0.0.0"),
    ):
        pass
    with running_api(settings, tmp_path / "log", host="0.0.0.0", auth="none") as http:
        assert http.get("/v1/jobs", headers={"Host": "aps.example"}).status_code == 200
    assert "anyone who can reach 0.0.0.0" in (tmp_path / "log").read_text()
    KeyStore(redis).add(new_key("a", ALL)[1])
    with running_api(settings, tmp_path / "log", host="0.0.0.0") as http:
        assert http.get("/v1/jobs").status_code == 401
