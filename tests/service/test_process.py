"""Memory and response headers of an API process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.apis import running_api
from tests.stack import Stack, png

MAX_KB = 150_000


def test_the_process_is_small(stack: Stack, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running_api(stack.settings, log) as http:
        [process] = re.findall(r"Started server process \[(\d+)\]", log.read_text())
        for _ in range(3):
            assert (
                http.post(
                    "/v1/restore",
                    files={"image": png(400, 400)},
                    data={"spec": '{"operator": {"type": "sharpen"}}'},
                ).status_code
                == 422
            )
            for path in ("/", "/openapi.json", "/docs", "/v1/capabilities", "/v1/jobs", "/metrics"):
                assert http.get(path).status_code == 200
        [resident] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
        assert int(resident) < MAX_KB


ANSWERS = [
    ("GET", "/"),
    ("GET", "/studio.js"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("GET", "/v1/jobs"),
    ("GET", "/v1/nothing"),
    ("POST", "/v1/jobs"),
]


@pytest.mark.parametrize(
    ("method", "path"), [*ANSWERS, ("POST", "/v1/restore"), ("GET", "/livez"), ("HEAD", "/")]
)
def test_every_response_has_security_headers(stack: Stack, method: str, path: str) -> None:
    headers = stack.http.request(method, path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert (
        headers["Cross-Origin-Opener-Policy"]
        == headers["Cross-Origin-Resource-Policy"]
        == "same-origin"
    )
    policy = dict(
        rule.strip().split(" ", 1) for rule in headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'self'"
    assert "script-src" not in policy
    assert policy["object-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert re.fullmatch("[0-9a-f]{32}", headers["X-Request-ID"])


def linked(page: str) -> Iterator[str]:
    """URLs that a page loads."""
    yield from re.findall(r'(?:src|href)="([^"#]+)"', page)


@pytest.mark.parametrize("page", ["/", "/docs"])
def test_pages_load_nothing_from_elsewhere(stack: Stack, page: str) -> None:
    address = httpx.URL(stack.url).join(page)
    links = list(linked(stack.http.get(page).text))
    assert links
    for link in links:
        target = address.join(link)
        assert target.host == address.host
        assert stack.http.get(target).status_code == 200, link
