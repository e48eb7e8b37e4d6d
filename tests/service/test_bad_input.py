"""Invalid input gets a typed problem document, never status 500, and nothing is stored."""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.stack import Stack, png

GOOD = {"operator": {"type": "denoise"}, "sigma": 0.1}


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def huge_png() -> bytes:
    """A PNG with a valid header of 50,000 x 50,000 pixels and almost no data."""
    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 100))
        + chunk(b"IEND", b"")
    )


def animated() -> bytes:
    out = io.BytesIO()
    frames = [Image.fromarray(np.full((16, 16, 3), value, np.uint8)) for value in (0, 128, 255)]
    frames[0].save(out, "WEBP", save_all=True, append_images=frames[1:])
    return out.getvalue()


SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>alert(1)</script></svg>'
)

PICTURES = {
    "not an image": (b"hello, I am a text file", 422, "not_an_image"),
    "truncated": (png()[:-200], 422, "image_truncated"),
    "truncated JPEG": (png(image_format="JPEG")[:-400], 422, "image_truncated"),
    "50000 x 50000 header": (huge_png(), 422, "image_too_large"),
    "no bytes": (b"", 422, "image_empty"),
    "SVG": (SVG, 422, "unsupported_image_format"),
    "GIF": (png(image_format="GIF", mode="P"), 422, "unsupported_image_format"),
    "animated": (animated(), 422, "image_animated"),
    "larger than this device takes": (png(900, 900), 422, "image_too_large"),
}

SPECS: dict[str, tuple[Any, str]] = {
    "unknown operator": ({"operator": {"type": "sharpen"}}, "/operator"),
    "operator without a type": ({"operator": {}}, "/operator"),
    "operator is text": ({"operator": "denoise"}, "/operator"),
    "no operator": ({}, "/operator"),
    "unknown field": ({**GOOD, "strength": 1}, "/strength"),
    "unknown field with strange characters": ({**GOOD, "a/~é\n": 1}, "/a~1~0é"),
    "unknown field of an operator": (
        {"operator": {"type": "denoise", "radius": 3}},
        "/operator/radius",
    ),
    "factor not offered": (
        {"operator": {"type": "super_resolution", "factor": 3}},
        "/operator/factor",
    ),
    "sigma too large": ({**GOOD, "sigma": 2}, "/sigma"),
    "sigma NaN": ({**GOOD, "sigma": float("nan")}, "/sigma"),
    "sigma infinite": ({**GOOD, "sigma": float("inf")}, "/sigma"),
    "seed negative": ({**GOOD, "seed": -1}, "/seed"),
    "steps out of range": ({**GOOD, "sampler": {"steps": 0}}, "/sampler/steps"),
    "steps not a number": ({**GOOD, "sampler": {"steps": "many"}}, "/sampler/steps"),
}


@pytest.fixture(autouse=True)
def _nothing_is_stored(stack: Stack) -> Iterator[None]:
    def stored() -> tuple[set[str], int]:
        folders = {path.name for path in stack.settings.artifacts_dir.glob("*")}
        return folders, len(stack.http.get("/v1/jobs", params={"limit": 100}).json()["jobs"])

    before = stored()
    yield
    assert stored() == before


def check(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert (problem["status"], problem["code"], problem["type"]) == (
        status,
        code,
        f"urn:aps:problem:{code}",
    )
    assert problem["title"]
    assert problem["detail"]
    assert problem["request_id"] == answer.headers["x-request-id"]
    return problem


def post(
    stack: Stack, image: bytes | None = None, spec: Any = GOOD, **files: bytes
) -> httpx.Response:
    pictures = {"image": png() if image is None else image, **files}
    return stack.http.post("/v1/restore", files=pictures, data={"spec": json.dumps(spec)})


@pytest.mark.parametrize("name", PICTURES)
def test_a_bad_picture(stack: Stack, name: str) -> None:
    data, status, code = PICTURES[name]
    problem = check(post(stack, data), status, code)
    assert "/tmp" not in problem["detail"]


@pytest.mark.parametrize("name", PICTURES)
def test_a_bad_picture_in_json(stack: Stack, name: str) -> None:
    data, status, code = PICTURES[name]
    uri = "data:image/png;base64," + base64.b64encode(data).decode()
    check(stack.http.post("/v1/restore", json={"image": uri, **GOOD}), status, code)


@pytest.mark.parametrize("name", SPECS)
def test_a_bad_spec(stack: Stack, name: str) -> None:
    spec, pointer = SPECS[name]
    problem = check(post(stack, spec=spec), 422, "invalid_spec")
    assert any(error["pointer"].startswith(pointer) for error in problem["errors"]), problem
    assert not any("constrained" in error["pointer"] for error in problem["errors"]), problem


def test_specs_that_do_not_fit_the_pictures(stack: Stack) -> None:
    user_mask = {"operator": {"type": "inpainting", "mask": "upload"}}
    assert "takes no mask" in check(post(stack, mask=png()), 422, "invalid_spec")["detail"]
    assert "needs a mask" in check(post(stack, spec=user_mask), 422, "invalid_spec")["detail"]
    assert (
        "32x64"
        in check(post(stack, spec=user_mask, mask=png(32, 64)), 422, "invalid_spec")["detail"]
    )
    check(post(stack, spec=user_mask, mask=b"no picture"), 422, "not_an_image")
    nested: dict[str, Any] = {"type": "denoise"}
    for _ in range(400):
        nested = {"type": "compose", "stages": [nested]}
    check(post(stack, spec={"operator": nested}), 400, "malformed_body")
    check(post(stack, spec={**GOOD, "\ud800": 1}), 400, "malformed_body")


def test_an_unknown_prior(stack: Stack) -> None:
    assert (
        "embedded"
        in check(post(stack, spec={**GOOD, "prior": "mmada_9b"}), 422, "invalid_spec")["detail"]
    )


@pytest.mark.parametrize(
    "body", ["{", "[]", "7", '"text"', "", "[" * 5_000, '{"a": 1' + "0" * 5000 + "}"]
)
def test_invalid_json_is_rejected(stack: Stack, body: str) -> None:
    check(
        stack.http.post("/v1/restore", content=body, headers={"Content-Type": "application/json"}),
        400,
        "malformed_body",
    )
    check(
        stack.http.post("/v1/restore", files={"image": png()}, data={"spec": body}),
        400,
        "malformed_body",
    )


@pytest.mark.parametrize(
    "uri",
    [
        "",
        7,
        "example.org/a.png",
        "data:image/png,abc",
        "data:image/png;base64,???",
        "data:image/png;base64,AAA",
    ],
)
def test_invalid_data_uris_are_rejected(stack: Stack, uri: object) -> None:
    check(stack.http.post("/v1/restore", json={"image": uri, **GOOD}), 400, "malformed_body")


def test_missing_and_unexpected_parts_are_rejected(stack: Stack) -> None:
    check(
        stack.http.post("/v1/restore", data={"spec": "{}"}, files={"spec2": b""}),
        400,
        "malformed_body",
    )
    check(
        stack.http.post("/v1/restore", files={"mask": png()}, data={"spec": json.dumps(GOOD)}),
        400,
        "malformed_body",
    )
    check(stack.http.post("/v1/restore", json=GOOD), 400, "malformed_body")
    check(stack.http.post("/v1/restore", json={"image": None, **GOOD}), 400, "malformed_body")
    check(post(stack, extra=png(8, 8)), 400, "malformed_body")
    check(post(stack, spec={**GOOD, "type": "stylize"}), 400, "malformed_body")


def test_other_content_types_are_rejected(stack: Stack) -> None:
    check(
        stack.http.post("/v1/restore", content=png(), headers={"Content-Type": "image/png"}),
        415,
        "unsupported_media_type",
    )
    check(stack.http.post("/v1/restore"), 415, "unsupported_media_type")
    check(
        stack.http.post(
            "/v1/restore",
            content=b"--x",
            headers={"Content-Type": "multipart/form-data; boundary=x"},
        ),
        400,
        "malformed_body",
    )
    check(
        stack.http.post(
            "/v1/restore", content=b"abc", headers={"Content-Type": "multipart/form-data"}
        ),
        400,
        "malformed_body",
    )


def test_oversized_bodies_are_rejected_with_and_without_content_length(stack: Stack) -> None:
    limit = stack.settings.max_body_bytes
    check(post(stack, b"x" * (limit + 1)), 413, "body_too_large")
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
        while sent < 20 * limit:
            sent += 65536
            yield b"x" * 65536

    try:
        answer = stack.http.post(
            "/v1/restore",
            content=endless(),
            headers={"Content-Type": "multipart/form-data; boundary=x"},
        )
        check(answer, 413, "body_too_large")
    except (httpx.WriteError, httpx.RemoteProtocolError):
        pass  # the server closed the connection during the upload
    assert sent < 20 * limit
    check(post(stack, b"x" * (stack.settings.max_upload_bytes + 1)), 413, "body_too_large")


def test_other_addresses_and_methods(stack: Stack) -> None:
    unknown = "01900000-0000-7000-8000-000000000000"
    for path in (
        "/v1/nothing",
        f"/v1/jobs/{unknown}",
        f"/v1/jobs/{unknown}/events",
        f"/v1/jobs/{unknown}/artifacts/result.png",
        "/v1/jobs/..%2f..%2fetc",
    ):
        check(stack.http.get(path), 404, "not_found")
    check(stack.http.delete(f"/v1/jobs/{unknown}"), 404, "not_found")
    check(stack.http.post(f"/v1/jobs/{unknown}/cancel"), 404, "not_found")
    assert "POST" in stack.http.get("/v1/restore").headers["allow"]
    check(stack.http.get("/v1/restore"), 405, "method_not_allowed")
    check(stack.http.get("/v1/jobs", params={"limit": 1000}), 422, "invalid_spec")
    check(stack.http.get("/v1/jobs", params={"cursor": "x"}), 422, "invalid_spec")


def test_an_invalid_request_id_is_replaced(stack: Stack) -> None:
    answer = stack.http.get("/livez", headers={"X-Request-ID": "a b <script>"})
    assert len(answer.headers["X-Request-ID"]) == 32
