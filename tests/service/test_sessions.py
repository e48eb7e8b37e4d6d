"""Browser sessions have the rights of their key, work only for own pages, and end with the key."""

from __future__ import annotations

import json
from http.cookies import SimpleCookie
from pathlib import Path

import httpx
import pytest
from redis import Redis

from service.access.keys import KeyStore, Scope, new_key
from service.access.sessions import MAX_SESSIONS, SessionStore
from tests.stack import Stack, png

ALL: frozenset[Scope] = frozenset({"read", "write"})
QUICK = {"operator": {"type": "denoise"}, "sigma": 0.1, "sampler": {"steps": 2, "inner_steps": 1}}


def started(http: httpx.Client, token: str, **headers: str) -> str:
    """Exchanges a key for a cookie and returns its value."""
    answer = http.post("/v1/session", headers={"Authorization": f"Bearer {token}", **headers})
    assert answer.status_code == 204, answer.text
    http.cookies.clear()
    return SimpleCookie(answer.headers["set-cookie"])["aps_session"].value


def asks(http: httpx.Client, method: str, path: str, cookie: str, **headers: str) -> httpx.Response:
    """Sends a request with the cookie, as a browser does."""
    answer = http.request(method, path, headers={"Cookie": f"aps_session={cookie}", **headers})
    http.cookies.clear()
    return answer


def submitted(http: httpx.Client, cookie: str, **headers: str) -> httpx.Response:
    data = {"spec": json.dumps(QUICK)}
    return http.post(
        "/v1/restore",
        files={"image": png()},
        data=data,
        headers={"Cookie": f"aps_session={cookie}", **headers},
    )


def test_the_cookie_is_restricted_to_this_service(
    guarded: httpx.Client, tokens: dict[str, str]
) -> None:
    for origin, secure in (("http://127.0.0.1", False), ("https://aps.example", True)):
        answer = guarded.post(
            "/v1/session", headers={"Authorization": f"Bearer {tokens['ann']}", "Origin": origin}
        )
        cookie = SimpleCookie(answer.headers["set-cookie"])["aps_session"]
        assert cookie["httponly"]
        assert cookie["samesite"] == "strict"
        assert cookie["path"] == "/v1"
        assert not cookie["domain"]
        assert bool(cookie["secure"]) is secure
        assert len(cookie.value) >= 43
        assert cookie.value not in tokens["ann"]
        guarded.cookies.clear()


def test_a_session_has_exactly_the_rights_of_its_key(
    guarded: httpx.Client, stack: Stack, tokens: dict[str, str]
) -> None:
    own = {"Origin": str(guarded.base_url).rstrip("/")}
    cookies = {name: started(guarded, token) for name, token in tokens.items()}
    job = submitted(guarded, cookies["ann"], **own).json()
    assert asks(guarded, "GET", job["urls"]["self"], cookies["ann"]).status_code == 200
    assert (
        guarded.get(
            job["urls"]["self"], headers={"Authorization": f"Bearer {tokens['ann']}"}
        ).status_code
        == 200
    ), "the same tenant"
    assert asks(guarded, "GET", job["urls"]["self"], cookies["bob"]).status_code == 404
    assert "event: done" in asks(guarded, "GET", job["urls"]["events"], cookies["ann"]).text
    assert (
        asks(guarded, "GET", f"{job['urls']['self']}/artifacts/result.png", cookies["ann"]).content[
            :4
        ]
        == b"\x89PNG"
    )
    refused = submitted(guarded, cookies["reader"], **own)
    assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_scope")
    for name, cookie in cookies.items():
        assert asks(guarded, "GET", "/v1/capabilities", cookie).json()["principal"] == name
    assert asks(guarded, "DELETE", job["urls"]["self"], cookies["ann"], **own).status_code == 204


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "OURS"},
    ],
)
def test_other_pages_cannot_use_it_to_change_anything(
    guarded: httpx.Client, tokens: dict[str, str], headers: dict[str, str]
) -> None:
    cookie = started(guarded, tokens["ann"])
    sent = {
        name: value.replace("OURS", str(guarded.base_url).rstrip("/"))
        for name, value in headers.items()
    }
    for method, path in (
        ("POST", "/v1/restore"),
        ("POST", "/v1/jobs/x/cancel"),
        ("DELETE", "/v1/jobs/x"),
        ("DELETE", "/v1/session"),
        ("POST", "/v1/session"),
    ):
        answer = asks(guarded, method, path, cookie, **sent)
        assert (answer.status_code, answer.json()["code"]) == (403, "host_not_allowed"), (
            method,
            path,
        )
    assert asks(guarded, "GET", "/v1/jobs", cookie, **sent).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "same-origin"},
        {"Origin": "OURS"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://behind.a.proxy"},
    ],
)
def test_own_pages_can_use_the_session(
    guarded: httpx.Client, tokens: dict[str, str], headers: dict[str, str]
) -> None:
    sent = {
        name: value.replace("OURS", str(guarded.base_url).rstrip("/"))
        for name, value in headers.items()
    }
    assert (
        asks(guarded, "DELETE", "/v1/jobs/x", started(guarded, tokens["ann"]), **sent).status_code
        == 404
    )


def test_a_session_ends_with_sign_out_or_revocation_of_its_key(
    guarded: httpx.Client, running_stack: Stack
) -> None:
    with Redis.from_url(running_stack.settings.redis_url) as redis:
        store = KeyStore(redis)
        token, key = new_key("dora", ALL)
        store.add(key)
        first, second = started(guarded, token), started(guarded, token)
        assert first != second
        answer = asks(guarded, "DELETE", "/v1/session", first, **{"Sec-Fetch-Site": "same-origin"})
        assert answer.status_code == 204
        assert SimpleCookie(answer.headers["set-cookie"])["aps_session"]["max-age"] == "0"
        assert [
            asks(guarded, "GET", "/v1/jobs", cookie).status_code for cookie in (first, second)
        ] == [401, 200]
        store.revoke(key.id)
        assert asks(guarded, "GET", "/v1/jobs", second).status_code == 401
        lasts = [redis.ttl(name) for name in redis.scan_iter("aps:session:*")]
        assert lasts
        assert all(0 < seconds <= 7 * 86_400 for seconds in lasts)


def test_a_session_beyond_the_limit_ends_the_oldest(redis: Redis) -> None:
    keys = KeyStore(redis, "aps:")
    _, key = new_key("ann", ALL)
    keys.add(key)
    sessions = SessionStore(keys)
    tokens = [sessions.start(key) for _ in range(MAX_SESSIONS + 1)]
    assert sessions.find(tokens[0]) is None
    assert all(sessions.find(token) == key for token in tokens[1:])
    assert redis.zcard(f"aps:sessions:{key.id}") == MAX_SESSIONS


def test_it_is_neither_stored_nor_logged(
    guarded: httpx.Client, running_stack: Stack, tokens: dict[str, str], log: Path
) -> None:
    cookie = started(guarded, tokens["ann"])
    asks(guarded, "GET", "/v1/jobs", cookie)
    assert "POST /v1/session: 204" in log.read_text()
    assert cookie not in log.read_text()
    with Redis.from_url(running_stack.settings.redis_url) as redis:
        assert not any(
            cookie.encode() in (redis.dump(name) + name) for name in redis.scan_iter("*")
        )


def test_sessions_need_api_keys(stack: Stack) -> None:
    answer = stack.http.post("/v1/session")
    assert (answer.status_code, answer.headers.get("set-cookie")) == (204, None)
    assert stack.http.get("/v1/capabilities").json()["principal"] == ""
