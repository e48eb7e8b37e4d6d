"""What problem documents say: the field that is wrong, where it is in the request, and how to send
it.
"""

from __future__ import annotations

import io
import json
from typing import Any

import httpx
import pytest
from PIL import Image

from tests.stack import Stack, png, uri

DENOISE: dict[str, Any] = {"operator": {"type": "denoise"}}
BAD = "data:image/png;base64,AAAA"


def pointers(answer: httpx.Response) -> list[str]:
    assert 400 <= answer.status_code < 500, answer.text
    return [error["pointer"] for error in answer.json()["errors"]]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/image"),
        ({"image": 5}, "/image"),
        ({"image": BAD}, "/image"),
        ({"image": "sha256:" + 64 * "0"}, "/image"),
        ({"image": "https://example.org/a.png"}, "/image"),
        ({"image": uri(png()), "prior": "absent"}, "/prior"),
        ({"image": uri(png()), "prior": "embedded_text"}, "/prior"),
        ({"image": uri(png()), "prior": "mmada_8b"}, "/prior"),
        ({"image": uri(png()), "mask": uri(png())}, "/mask"),
        ({"image": uri(png()), "kernel": uri(png())}, "/kernel"),
        ({"image": uri(png()), "whole": uri(png(8, 8))}, "/whole"),
        ({"image": uri(png()), "operator": {"type": "inpainting", "mask": "upload"}}, "/mask"),
        ({"image": uri(png()), "type": "edit"}, "/type"),
    ],
)
def test_pictures_and_fields_have_an_entry(
    stack: Stack, body: dict[str, Any], pointer: str
) -> None:
    answer = stack.http.post("/v1/restore", json={**DENOISE, **body})
    assert pointers(answer) == [pointer], answer.text


def test_parts_parameters_and_fields_of_bodies_have_an_entry(stack: Stack) -> None:
    def sent(**data: str) -> httpx.Response:
        return stack.http.post("/v1/restore", files={"image": png()}, data=data)

    assert pointers(sent(spec="{")) == ["/spec"]
    assert pointers(sent(spec="{}", webhook="[]")) == ["/webhook"]
    assert pointers(stack.http.get("/v1/jobs?limit=0")) == ["/limit"]
    share = "/v1/jobs/01900000-0000-7000-8000-000000000000/share"
    assert pointers(stack.http.post(share, json={"seconds": -1})) == ["/seconds"]
    broken = stack.http.post(share, content="{", headers={"Content-Type": "application/json"})
    assert pointers(broken) == [""]


def test_a_batch_names_the_picture(stack: Stack) -> None:
    first = stack.http.post("/v1/batches", json={"images": [BAD], "spec": DENOISE})
    assert pointers(first) == ["/images/0"]
    sent = {"images": [uri(png()), BAD, "sha256:" + 64 * "0"], "spec": DENOISE}
    batch = stack.http.post("/v1/batches", json=sent).json()
    stack.http.post(batch["urls"]["cancel"])
    errors = [picture["error"] for picture in batch["pictures"]]
    assert [error and error["detail"].split(":")[0] for error in errors] == [
        None,
        "'images/1'",
        "'images/2'",
    ]


def test_a_form_has_each_part_once(stack: Stack) -> None:
    twice = [("image", png()), ("image", png(40, 40))]
    answer = stack.http.post("/v1/restore", files=twice, data={"spec": json.dumps(DENOISE)})
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")
    assert "several parts 'image'" in answer.json()["detail"]
    assert pointers(answer) == ["/image"]
    specs = [("spec", (None, "{}")), ("spec", (None, json.dumps(DENOISE)))]
    for path, name in (("restore", "image"), ("batches", "images")):
        answer = stack.http.post(f"/v1/{path}", files=[(name, png()), *specs])
        assert (answer.status_code, pointers(answer)) == (400, ["/spec"])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"prompt": "What is oak?", "stop": "."}, "/stop: Input should be a valid list"),
        ({"prompt": ""}, "/prompt: String should have at least 1 character"),
        ({"prompt": []}, "/prompt: List should have at least 1 item after validation, not 0"),
        ({"prompt": [7]}, "/prompt/0: Input should be an object"),
        ({"prompt": "x", "sampler": None}, "/sampler: Input should be an object"),
        ([], "The body must be a JSON object."),
        (None, "The body must be a JSON object."),
        ("x", "The body must be a JSON object."),
    ],
)
def test_messages_have_no_words_of_python(stack: Stack, body: Any, words: str) -> None:
    json_type = {"Content-Type": "application/json"}
    answer = stack.http.post("/v1/guide", content=json.dumps(body), headers=json_type)
    assert answer.json()["detail"] == words


def test_a_webhook_that_is_no_object_is_shown_its_form(stack: Stack) -> None:
    form = '{"url": "https://example.org/hook"}'
    for webhook in ("https://example.org/hook", '"https://example.org/hook"', "[]"):
        answer = stack.http.post(
            "/v1/restore",
            files={"image": png()},
            data={"spec": json.dumps(DENOISE), "webhook": webhook},
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")
        assert f"The part 'webhook' must be a JSON object, like {form}" in answer.json()["detail"]
    body = {**DENOISE, "image": uri(png()), "webhook": "https://example.org/hook"}
    answer = stack.http.post("/v1/restore", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"] == f"/webhook: Input should be an object, like {form}"


def test_a_black_kernel_is_refused(stack: Stack) -> None:
    def kernel(level: int) -> bytes:
        out = io.BytesIO()
        Image.new("L", (5, 5), level).save(out, "PNG")
        return out.getvalue()

    spec = {"operator": {"type": "kernel_blur"}, "prior": "embedded"}
    files, stored = {"image": png(), "kernel": kernel(0)}, {}
    for name, data in files.items():
        kept = stack.http.post("/v1/files", content=data, headers={"Content-Type": "image/png"})
        stored[name] = f"sha256:{kept.json()['sha256']}"
    form: dict[str, Any] = {"files": files, "data": {"spec": json.dumps(spec)}}
    for sent in (form, {"json": {**spec, **stored}}):
        answer = stack.http.post("/v1/restore", **sent)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_spec"), answer.text
        assert answer.json()["detail"] == "The kernel picture is black; it needs a bright pixel."
        assert pointers(answer) == ["/kernel"]
    form["files"] = {"image": png(), "kernel": kernel(1)}  # only proportions matter
    accepted = stack.http.post("/v1/restore", **form)
    assert accepted.status_code == 202, accepted.text
    stack.http.post(accepted.json()["urls"]["cancel"])
