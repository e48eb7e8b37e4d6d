"""Unusual requests get the right status and reveal nothing about other tenants."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from redis import Redis

from aps_core.errors import InvalidSpec
from aps_core.tasks import RestoreSpec, validate_spec
from service.access.keys import KeyStore, new_key
from service.jobs import new_job_id
from tests.abuse.attacked import Target
from tests.stack import png

GOOD = {"operator": {"type": "denoise"}, "sigma": 0.1}


def submit(http: httpx.Client, spec: str = '{"operator": {"type": "denoise"}}') -> httpx.Response:
    return http.post("/v1/restore", files={"image": png()}, data={"spec": spec})


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/restor", 404, "not_found"),
        ("GET", "/v1/restore", 405, "method_not_allowed"),
        ("GET", "/v1/jobs?phase=failed", 422, "unknown_parameter"),
        ("GET", "/v1/capabilities?x=1", 422, "unknown_parameter"),
        ("POST", "/v1/restore?wait=3", 422, "unknown_parameter"),
        ("GET", "/v1/jobs/{job}:events", 404, "not_found"),
        ("GET", "/v1/jobs/{job}%0a", 404, "not_found"),
        ("GET", "/v1/jobs/{job}:events/events", 404, "not_found"),
        ("GET", "/v1/jobs/{nobody}:events", 404, "not_found"),
        ("GET", "/v1/jobs/" + "9" * 5000, 404, "not_found"),
        ("POST", "/v1/jobs/{job}:previews/cancel", 404, "not_found"),
        ("DELETE", "/v1/jobs/{job}:webhooks", 404, "not_found"),
        ("POST", "/v1/webhooks/deliveries/{job}/redeliver", 404, "not_found"),
        ("POST", "/v1/webhooks/deliveries/..:x/redeliver", 404, "not_found"),
        ("GET", "/v1/jobs?cursor=x", 422, "invalid_spec"),
    ],
)
def test_odd_paths(target: Target, method: str, path: str, status: int, code: str) -> None:
    with target.client("victim") as http:
        job = submit(http).json()["id"]
        answer = http.request(method, path.format(job=job, nobody=new_job_id()))
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert len(answer.content) < 2000


def test_a_mistyped_path_gets_a_suggestion(target: Target) -> None:
    with target.client() as http:
        assert "Did you mean /v1/restore?" in http.get("/v1/restor").json()["detail"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://["}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.test@127.0.0.1"}, 403),
        ({"Host": "127.0.0.1/evil.test"}, 403),
        ({"Host": "["}, 403),
        ({"Host": "127.0.0.1"}, 200),
        ({"Host": "LOCALHOST:80"}, 200),
    ],
)
def test_hosts_and_origins(headers: dict[str, str], status: int, open_api: str) -> None:
    assert httpx.get(f"{open_api}/v1/jobs", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        ({"type": "saturating_blur", "sigma": 5e-324}, "greater than or equal to"),
        ({"type": "gaussian_blur", "sigma": 5e-324}, "greater than or equal to"),
        ({"type": "gaussian_blur", "sigma": 15}, "reaches 60 pixels"),
        ({"type": "saturating_blur", "sigma": 15}, "reaches 60 pixels"),
        ({"type": "motion_blur", "kernel_size": 121}, "reaches 60 pixels"),
        (
            {"type": "compose", "stages": [{"type": "gaussian_blur", "sigma": 15}]},
            "reaches 60 pixels",
        ),
        (
            {"type": "inpainting", "mask": "box", "top": 0, "left": 0, "height": 1, "width": 1},
            "covers the whole picture",
        ),
    ],
)
def test_what_no_worker_could_compute_is_refused_at_once(
    target: Target, operator: dict[str, Any], words: str
) -> None:
    with target.client("victim") as http:
        answer = http.post(
            "/v1/restore",
            json={"operator": operator, "sigma": 0.1, "image": _uri(png(48, 48))},
        )
    assert answer.status_code == 422, answer.text
    assert words in answer.text


def test_the_smallest_blurs_can_be_computed() -> None:
    torch = pytest.importorskip("torch")
    for name, sigma in (("gaussian_blur", 0.01), ("saturating_blur", 0.03)):
        spec = validate_spec({"type": "restore", "operator": {"type": name, "sigma": sigma}})
        assert isinstance(spec, RestoreSpec)
        assert spec.operator.bind((3, 32, 32))(torch.rand(1, 3, 32, 32)).isfinite().all()
        with pytest.raises(InvalidSpec):
            spec.operator.model_copy(update={"sigma": 15}).check_shape((3, 60, 60))


def test_a_session_cannot_outlive_its_end_through_another(target: Target) -> None:
    with target.client("attacker") as http:
        cookie = http.post("/v1/session").raise_for_status().cookies["aps_session"]
    same = {"Sec-Fetch-Site": "same-origin"}
    with httpx.Client(base_url=target.url, cookies={"aps_session": cookie}) as page:
        assert page.get("/v1/jobs").status_code == 200
        answer = page.post("/v1/session", headers=same)
        assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
        assert page.delete("/v1/session", headers=same).status_code == 204
        assert (
            httpx.get(f"{target.url}/v1/jobs", cookies={"aps_session": cookie}).status_code == 401
        )


def test_high_priority_needs_its_scope(target: Target) -> None:
    with target.client("attacker") as http:
        answer = http.post("/v1/restore", json={**GOOD, "image": _uri(png()), "priority": "high"})
    assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")


def test_keys_expire(target: Target) -> None:
    with Redis.from_url(target.settings.redis_url) as redis:
        store = KeyStore(redis)
        now = datetime.now(UTC)
        soon = now + timedelta(seconds=60)
        token, key = new_key("guest", frozenset({"read"}), expires_at=soon)
        store.add(key)
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{target.url}/v1/jobs", headers=headers).status_code == 200
        over = key.model_copy(update={"expires_at": now - timedelta(seconds=1)})
        redis.hset("aps:apikeys", key.id, over.model_dump_json())
        assert httpx.get(f"{target.url}/v1/jobs", headers=headers).status_code == 401
        store.revoke(key.id)


def _uri(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()
