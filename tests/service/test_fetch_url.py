"""Pictures by URL: fetched from public addresses only, within limits."""

from __future__ import annotations

import ipaddress
import json
import re
import ssl
import time
from pathlib import Path

import pytest
import trustme

from service.api.problems.errors import BodyTooLarge
from service.egress.requests import EgressFailed, UrlRefused, destination, is_public
from service.settings import Settings
from service.uploads.fetch_url import fetch
from tests.apis import running_api
from tests.service.internet import ESCAPES, INSIDE, OUTSIDE, Server, answers, served
from tests.stack import Stack, png


@pytest.fixture
def open_settings() -> Settings:
    """Allows the address of the simulated internet and no other private address."""
    return Settings(
        image_urls=True, egress_allow=[f"{OUTSIDE}/32"], fetch_seconds=5, max_upload_bytes=500_000
    )


def url(server: Server, path: str = "photo", host: str = OUTSIDE) -> str:
    return f"http://{host}:{server.server_address[1]}/{path}"


def test_a_picture_is_fetched(internet: Server, open_settings: Settings) -> None:
    assert fetch(url(internet), "image", open_settings) == png()
    assert fetch(url(internet, "to/%2Fto%2F%252Fphoto"), "image", open_settings) == png(), (
        "two redirects"
    )


def test_fetching_is_off_by_default(internet: Server) -> None:
    with pytest.raises(UrlRefused, match="data URI"):
        fetch(url(internet), "image", Settings())
    assert internet.seen == []


@pytest.mark.parametrize("host", ESCAPES)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_private_addresses_are_rejected_by_name_and_number(
    inside: Server, open_settings: Settings, host: str, scheme: str
) -> None:
    with pytest.raises(UrlRefused):
        fetch(url(inside, host=host).replace("http", scheme, 1), "image", open_settings)


@pytest.mark.parametrize(
    "host",
    [
        host
        for host in ESCAPES
        if host and " " not in host and "\t" not in host and "\\" not in host and host.isascii()
    ],
)
def test_redirects_to_private_addresses_are_rejected(
    internet: Server, inside: Server, open_settings: Settings, host: str
) -> None:
    target = (
        url(inside, host=host)
        .replace("%", "%25")
        .replace("/", "%2F")
        .replace("#", "%23")
        .replace("?", "%3F")
    )
    with pytest.raises(UrlRefused):
        fetch(url(internet, f"to/{target}"), "image", open_settings)
    assert len(internet.seen) == 1


@pytest.mark.parametrize(
    "there",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "gopher://127.0.0.1:6379/_FLUSHALL",
        "redis://127.0.0.1",
        "//127.0.0.2/",
        "data:,x",
    ],
)
def test_other_schemes_are_rejected(
    internet: Server, inside: Server, open_settings: Settings, there: str
) -> None:
    with pytest.raises(UrlRefused):
        fetch(there if ":" in there else f"http:{there}", "image", open_settings)
    quoted = there.replace("/", "%2F")
    with pytest.raises(UrlRefused):
        fetch(url(internet, f"to/{quoted}"), "image", open_settings)


def test_dns_rebinding_has_no_effect(
    internet: Server, inside: Server, open_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answers(monkeypatch, [OUTSIDE], [INSIDE])
    assert fetch(url(internet, host="rebind.example"), "image", open_settings) == png()
    assert asked() == 1
    with pytest.raises(UrlRefused):
        fetch(url(internet, host="rebind.example"), "image", open_settings)


def test_a_redirect_to_the_same_name_is_looked_up_and_checked_again(
    internet: Server, inside: Server, open_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, [OUTSIDE], [INSIDE])
    with pytest.raises(UrlRefused):
        fetch(url(internet, "to/%2Fphoto", host="rebind.example"), "image", open_settings)


@pytest.mark.parametrize(
    "found",
    [
        [OUTSIDE, INSIDE],
        [INSIDE, OUTSIDE],
        ["93.184.215.14", "::1"],
        ["93.184.215.14", "10.0.0.1"],
        [],
    ],
)
def test_every_address_of_a_name_must_be_public(
    inside: Server, open_settings: Settings, monkeypatch: pytest.MonkeyPatch, found: list[str]
) -> None:
    answers(monkeypatch, found)
    for there in (url(inside, host="rebind.example"), "https://rebind.example/"):
        with pytest.raises(UrlRefused, match="public address"):
            fetch(there, "image", open_settings)


def test_public_addresses_need_https_on_port_443(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers(monkeypatch, ["93.184.215.14"])
    to = destination("https://rebind.example/a/b.png?c=d#e")
    assert (to.address, to.port, to.target) == ("93.184.215.14", 443, "/a/b.png?c=d")
    for there in (
        "http://rebind.example/",
        "https://rebind.example:8443/",
        "https://rebind.example:22/",
        "http://rebind.example:443/",
    ):
        with pytest.raises(UrlRefused, match="Only HTTPS on port 443"):
            destination(there)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "93.184.215.14",
        "2606:4700:4700::1111",
        "64:ff9b::8.8.8.8",
        "::ffff:8.8.8.8",
    ],
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("environment", ["http_proxy", "https_proxy", "all_proxy"])
def test_proxies_of_the_environment_are_not_used(
    internet: Server,
    inside: Server,
    open_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    environment: str,
) -> None:
    monkeypatch.setenv(environment, url(inside, host=INSIDE))
    assert fetch(url(internet), "image", open_settings) == png()


# -- bounds ---------------------------------------------------------------------------------------


def test_size_is_bounded_while_reading(internet: Server, open_settings: Settings) -> None:
    with pytest.raises(BodyTooLarge, match="500000"):
        fetch(url(internet, "endless"), "image", open_settings)


@pytest.mark.parametrize("where", ["headers", "body"])
def test_total_time_is_bounded_for_slow_responses(
    internet: Server, open_settings: Settings, where: str
) -> None:
    started = time.monotonic()
    with pytest.raises(EgressFailed, match="ReadTimeout"):
        fetch(
            url(internet, f"drip/{where}"),
            "image",
            open_settings.model_copy(update={"fetch_seconds": 0.5}),
        )
    assert time.monotonic() - started < 3


def test_the_number_of_redirects_is_limited(internet: Server, open_settings: Settings) -> None:
    with pytest.raises(EgressFailed, match="more than 3 redirects"):
        fetch(url(internet, f"to/{'%2Fto%2F'}"), "image", open_settings)
    assert len(internet.seen) == 4


@pytest.mark.parametrize("path", ["status/404", "status/500", "status/206", "gzip"])
def test_error_responses_are_not_pictures(
    internet: Server, open_settings: Settings, path: str
) -> None:
    with pytest.raises(EgressFailed, match=re.escape(OUTSIDE)):
        fetch(url(internet, path), "image", open_settings)


def test_a_refused_connection_is_reported(open_settings: Settings) -> None:
    with pytest.raises(EgressFailed, match="ConnectError"):
        fetch(f"http://{OUTSIDE}:1/", "image", open_settings)


# -- certificates, and the whole way
# ----------------------------------------------------------------


def test_certificates_are_checked_for_the_name_though_the_address_is_pinned(
    open_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    there, here = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("rebind.example").configure_cert(there)
    authority.configure_trust(here)
    answers(monkeypatch, [OUTSIDE])
    for server in served(OUTSIDE, tls=there):
        secure = url(server, host="rebind.example").replace("http", "https", 1)
        assert fetch(secure, "image", open_settings, here) == png()
        for wrong, trust in ((secure.replace("rebind.example", OUTSIDE), here), (secure, None)):
            with pytest.raises(EgressFailed, match="ConnectError"):
                fetch(wrong, "image", open_settings, trust)


def test_a_job_with_a_picture_url(
    running_stack: Stack, internet: Server, inside: Server, tmp_path: Path
) -> None:
    running_stack.ensure_worker()
    spec = {
        "operator": {"type": "denoise"},
        "sigma": 0.1,
        "sampler": {"steps": 1, "inner_steps": 1},
    }
    with running_api(
        running_stack.settings, tmp_path / "log", image_urls=True, egress_allow=[f"{OUTSIDE}/32"]
    ) as http:
        answer = http.post(
            "/v1/restore", json={**spec, "image": url(internet)}, headers={"Prefer": "wait=60"}
        )
        assert (answer.status_code, answer.json()["state"]) == (200, "succeeded")
        refused = http.post("/v1/restore", json={**spec, "image": url(inside, host=INSIDE)})
        assert (refused.status_code, refused.json()["code"]) == (422, "url_not_allowed")
        absent = http.post("/v1/restore", json={**spec, "image": url(internet, "status/404")})
        assert (absent.status_code, absent.json()["code"]) == (422, "fetch_failed")
        page = http.post(
            "/v1/restore", json={**spec, "image": url(internet), "mask": url(inside, host=INSIDE)}
        )
        assert page.status_code == 422
        seen = len(internet.seen)
        key = {"Idempotency-Key": "once"}
        ids = {
            http.post("/v1/restore", json={**spec, "image": url(internet)}, headers=key).json()[
                "id"
            ]
            for _ in range(2)
        }
        assert len(ids) == 1
        assert len(internet.seen) == seen + 1, "a repeated request fetches nothing"
    off = running_stack.http.post(
        "/v1/restore",
        content=json.dumps({**spec, "image": url(internet)}),
        headers={"Content-Type": "application/json"},
    )
    assert (off.status_code, off.json()["code"]) == (422, "url_not_allowed")
