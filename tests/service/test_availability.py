"""Submissions that need unavailable priors or weights are rejected with advice."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from redis import Redis

from aps_core.capabilities import describe
from aps_core.errors import InvalidSpec, WeightsMissing
from service.api.app_state import Services
from service.api.jobs.availability import (
    check_weights,
    describe_operators,
    describe_priors,
    worker_for,
)
from service.api.problems.errors import NoWorker, PriorNotLoaded
from service.jobs import WorkerInfo
from service.jobs.workers import RECENT_SECONDS
from service.settings import Settings
from tests.stack import Stack, png


def info(name: str, prior: str = "embedded", **changes: Any) -> WorkerInfo:
    known = {
        "seconds_per_token": 1e-5,
        "max_pixels": 512 * 512,
        "job_bytes": 10**9,
        "token_bytes": 10**5,
    }
    return WorkerInfo(name=name, prior=prior, device="cpu", **{**known, **changes})


def test_the_most_capable_worker_sets_the_limits() -> None:
    live = [info("a"), info("b", max_pixels=10**7), info("c", prior="other", max_pixels=10**8)]
    assert worker_for("embedded", ["embedded"], live).name == "b"


def test_each_reason_has_its_own_error(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))
    with pytest.raises(InvalidSpec, match=r"There is no prior 'absent'; known: .*embedded,"):
        worker_for("absent", ["embedded"], [])
    with pytest.raises(
        PriorNotLoaded,
        match=(
            r"'mmada_8b' is not loaded here; offered: embedded.*APS_PRIORS.*aps weights fetch"
            r" mmada-8b-base"
        ),
    ):
        worker_for("mmada_8b", ["embedded"], [])
    with pytest.raises(
        WeightsMissing,
        match=r"No worker holds the prior 'mmada_8b'.*aps weights fetch mmada-8b-base",
    ):
        worker_for("mmada_8b", ["embedded", "mmada_8b"], [info("a")])
    with pytest.raises(NoWorker, match="try again"):
        worker_for("embedded", ["embedded"], [])
    assert worker_for("mmada_8b", ["mmada_8b"], [info("far", prior="mmada_8b")]).name == "far", (
        "another machine has the weights"
    )


def test_missing_optional_weights_are_those_of_the_workers(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))  # this machine has nothing

    def lacking(*live: WorkerInfo) -> str | None:
        offered = ["mmada_8b"]
        return describe_priors(describe()["priors"], offered, live)[0]["lacking"]

    assert "aps weights fetch vgg16" in str(lacking(info("far", prior="mmada_8b")))
    assert "aps weights fetch vgg16" in str(lacking(info("other", checkpoints=("vgg16",))))
    assert lacking(info("far", prior="mmada_8b", checkpoints=("vgg16",))) is None


def test_with_scale_to_zero_the_last_known_worker_sets_the_limits(
    redis: Redis, settings: Settings
) -> None:
    services = Services.open(settings.model_copy(update={"scale_to_zero": True}))
    assert services.capable() == [], "nobody has ever lived"
    first, second = info("first"), info("second", max_pixels=10**7)
    for worker in (first, second):
        services.workers.renew(worker)
    assert services.capable() == [first, second]
    for worker in (first, second):
        services.workers.remove(worker.name)
    assert services.capable() == [second]
    assert Services.open(settings).capable() == []


def submit(stack: Stack, **spec: object) -> tuple[int, dict]:
    body = {"operator": {"type": "denoise"}, "sigma": 0.1, **spec}
    answer = stack.http.post("/v1/restore", files={"image": png()}, data={"spec": json.dumps(body)})
    return answer.status_code, answer.json()


def test_errors_over_http(stack: Stack) -> None:
    status, problem = submit(stack, prior="mmada_8b")
    assert (status, problem["code"]) == (409, "prior_not_loaded")
    assert "aps weights fetch mmada-8b-base" in problem["detail"]
    status, problem = submit(stack, prior="absent")
    assert (status, problem["code"]) == (422, "invalid_spec")


def test_additional_weights_must_be_on_all_workers_of_the_prior() -> None:
    has, lacks = info("a", checkpoints=("vgg16", "kernelwizard")), info("b")
    check_weights(("vgg16",), "embedded", [has, info("c", prior="other")])
    check_weights((), "embedded", [lacks])
    with pytest.raises(
        WeightsMissing,
        match=(
            r"'kernelwizard', which a worker of the prior 'embedded' lacks\. Run: aps weights fetch"
            r" kernelwizard"
        ),
    ):
        check_weights(("kernelwizard",), "embedded", [has, lacks])
    described = [
        {"type": "jpeg", "weights": ()},
        {"type": "nonlinear_blur", "weights": ("kernelwizard",)},
    ]
    assert [operator["available"] for operator in describe_operators(described, [has])] == [
        True,
        True,
    ]
    jpeg, blur = describe_operators(described, [lacks])
    assert (jpeg["available"], blur["available"]) == (True, False)
    assert "aps weights fetch kernelwizard" in blur["missing"]


@pytest.mark.parametrize(
    ("task", "spec", "name"),
    [
        ("restore", {"operator": {"type": "nonlinear_blur"}}, "kernelwizard"),
        (
            "restore",
            {
                "operator": {
                    "type": "compose",
                    "stages": [{"type": "nonlinear_blur"}, {"type": "jpeg"}],
                }
            },
            "kernelwizard",
        ),
        (
            "restore",
            {
                "operator": {"type": "denoise"},
                "loss": {"perceptual": "vgg16", "perceptual_weight": 0.001},
            },
            "vgg16",
        ),
        (
            "edit",
            {
                "prompt": "a cup",
                "left": 8,
                "loss": {"perceptual": "vgg16", "perceptual_weight": 0.001},
            },
            "vgg16",
        ),
        ("stylize", {"prompt": "a cup", "measure": {"type": "csd"}}, "csd-vit-l"),
    ],
)
def test_a_job_without_its_weights_is_not_queued(
    stack: Stack, task: str, spec: dict[str, Any], name: str
) -> None:
    if any(name in worker["checkpoints"] for worker in stack.live_workers()):
        pytest.skip(f"{name} is installed on this machine")
    picture = "style" if task == "stylize" else "image"
    answer = stack.http.post(f"/v1/{task}", files={picture: png()}, data={"spec": json.dumps(spec)})
    assert (answer.status_code, answer.json()["code"]) == (503, "weights_missing")
    assert f"aps weights fetch {name}" in answer.json()["detail"]


def test_a_job_beyond_the_workers_memory_is_not_queued(stack: Stack) -> None:
    import redis

    store = redis.Redis.from_url(stack.settings.redis_url)
    stored = {name: json.loads(text) for name, text in store.hgetall("aps:workers").items()}
    name, entry = next(each for each in stored.items() if each[1]["prior"] == "embedded")
    smaller = json.dumps({**entry, "job_bytes": entry["token_bytes"] * 100})
    for _ in range(5):  # the worker may have announced itself anew in the meantime
        store.hset("aps:workers", name, smaller)
        time.sleep(2 * RECENT_SECONDS)  # submissions may use a list of workers of this age
        status, problem = submit(stack, prior="embedded")
        if status == 503:
            break
    store.hset("aps:workers", name, json.dumps(entry))
    assert (status, problem["code"]) == (503, "insufficient_memory")
    assert "256 tokens take about" in problem["detail"]
    assert "at most 100 tokens" in problem["detail"]


def test_priors_are_named_with_commas_or_json(monkeypatch) -> None:
    for text in ("one,two", "one, two", '["one", "two"]'):
        monkeypatch.setenv("APS_PRIORS", text)
        assert Settings().priors == ["one", "two"]
