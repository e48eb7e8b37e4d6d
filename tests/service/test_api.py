"""Capabilities, health, metrics, headers and settings of the service."""

from __future__ import annotations

import re

from openapi_spec_validator import validate

from service.settings import Settings
from tests.stack import Stack, png


def test_capabilities_describe_operators_and_workers(stack: Stack) -> None:
    described = stack.http.get("/v1/capabilities").json()
    assert "super_resolution" in {operator["type"] for operator in described["operators"]}
    priors = {prior["name"]: prior for prior in described["priors"]}
    assert described["priors"][0]["name"] == "embedded"
    assert [name for name, prior in priors.items() if prior["available"]] == [
        "embedded",
        "embedded_denoiser",
        "embedded_documents",
        "embedded_photographs",
        "embedded_text",
    ]
    assert "aps weights fetch mmada-8b-base" in priors["mmada_8b"]["missing"]
    worker = described["workers"][0]
    assert worker["seconds_per_token"] > 0
    assert worker["max_pixels"] == stack.settings.area_limit
    assert worker["job_bytes"] > 128 * 128 / 16 * worker["token_bytes"]


def test_openapi_is_valid_and_holds_the_librarys_schemas(stack: Stack) -> None:
    described = stack.http.get("/openapi.json").json()
    validate(described)
    body = described["paths"]["/v1/restore"]["post"]["requestBody"]["content"]
    assert {"multipart/form-data", "application/json"} == set(body)
    assert "factor" in described["components"]["schemas"]["SuperResolution"]["properties"]


def test_health_and_metrics(stack: Stack) -> None:
    assert stack.http.get("/livez").json() == {"status": "ok"}
    assert stack.http.get("/readyz").json() == {
        "status": "ready",
        "priors": [
            "embedded",
            "embedded_denoiser",
            "embedded_documents",
            "embedded_photographs",
            "embedded_text",
        ],
    }
    job = stack.submit(sampler={"steps": 2, "inner_steps": 1})
    stack.wait(job["id"])
    text = stack.http.get("/metrics").text
    assert "aps_store_up 1.0" in text
    assert 'aps_jobs_queued{prior="embedded",priority="normal"} 0.0' in text
    assert 'aps_queue_oldest_age_seconds{prior="embedded"} 0.0' in text
    assert 'aps_queue_predicted_seconds{prior="embedded"} 0.0' in text
    assert 'route="/v1/restore"' in text
    assert job["id"] not in text, "ids are no labels"


def test_unset_settings_follow_the_priors_recommendation(stack: Stack) -> None:
    job = stack.submit(sampler={"steps": 1})
    recommended = stack.http.get("/v1/capabilities").json()["priors"][0]["recommended"]["sampler"][
        "aps"
    ]
    assert job["spec"]["sampler"] == {**job["spec"]["sampler"], **recommended, "steps": 1}
    assert stack.wait(job["id"])["metrics"]["inner_steps"] == [recommended["inner_steps"]]


def test_the_worker_exports_its_steps(stack: Stack) -> None:
    import httpx

    job = stack.submit(sampler={"steps": 2, "inner_steps": 3})
    stack.wait(job["id"])
    text = httpx.get(f"http://127.0.0.1:{stack.settings.metrics_port}/metrics").text
    for name in (
        "step_duration_seconds",
        "inner_step_seconds",
        "prior_forward_seconds",
        "checkpoint_seconds",
        "preview_seconds",
    ):
        assert float(re.search(rf'aps_{name}_count{{prior="embedded"}} (\S+)', text)[1]) >= 2
    assert float(re.search(r'aps_job_queue_seconds_count{prior="embedded"} (\S+)', text)[1]) >= 1
    assert 'aps_model_load_seconds{prior="embedded"}' in text


def test_pages_may_not_be_framed_and_types_not_guessed(stack: Stack) -> None:
    headers = stack.http.get("/livez").headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    job = stack.submit(sampler={"steps": 1, "inner_steps": 1})
    picture = stack.http.get(f"/v1/jobs/{job['id']}/artifacts/measurement.png")
    assert picture.headers["Content-Security-Policy"].startswith("sandbox")
    assert (
        stack.http.get(
            picture.request.url, headers={"If-None-Match": picture.headers["ETag"]}
        ).status_code
        == 304
    )
    assert picture.content != png(), "what was sent is not what is stored"
    stack.wait(job["id"])


def test_settings_reach_child_processes(monkeypatch) -> None:
    settings = Settings(
        redis_url="unix:///tmp/a b.sock", priors=["one", "two"], lease_seconds=1.5, max_pixels=4096
    )
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings


def test_the_broker_url_points_to_the_same_server() -> None:
    assert Settings(redis_url="unix:///run/a.sock").broker_url == "redis+socket:///run/a.sock"
    assert Settings(redis_url="rediss://h:1/2").broker_url == "rediss://h:1/2"
