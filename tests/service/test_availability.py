"""A prior that cannot be used is refused at submission, with what to do."""

from __future__ import annotations

import json

import pytest
from redis import Redis
from stack import Stack, png

from aps_core.errors import InvalidSpec, WeightsMissing
from service.availability import worker_for
from service.jobs import WorkerInfo
from service.problems import NoWorker, PriorNotLoaded
from service.services import Services
from service.settings import Settings


def info(name: str, prior: str = "embedded", **changes: int) -> WorkerInfo:
    known = {"seconds_per_token": 1e-5, "max_pixels": 512 * 512, "job_bytes": 10**9, "token_bytes": 10**5}
    return WorkerInfo(name=name, prior=prior, device="cpu", **{**known, **changes})


def test_the_most_capable_worker_sets_the_limits() -> None:
    live = [info("a"), info("b", max_pixels=10**7), info("c", prior="other", max_pixels=10**8)]
    assert worker_for("embedded", ["embedded"], live).name == "b"


def test_each_reason_is_its_own_error(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))
    with pytest.raises(InvalidSpec, match=r"There is no prior 'absent'; known: .*embedded,"):
        worker_for("absent", ["embedded"], [])
    with pytest.raises(PriorNotLoaded, match=r"'mmada_8b' is not loaded here; offered: embedded.*APS_PRIORS.*aps weights fetch mmada-8b-base"):
        worker_for("mmada_8b", ["embedded"], [])
    with pytest.raises(WeightsMissing, match=r"No worker holds the prior 'mmada_8b'.*aps weights fetch mmada-8b-base"):
        worker_for("mmada_8b", ["embedded", "mmada_8b"], [info("a")])
    with pytest.raises(NoWorker, match="try again"):
        worker_for("embedded", ["embedded"], [])
    assert worker_for("mmada_8b", ["mmada_8b"], [info("far", prior="mmada_8b")]).name == "far", "another machine has the weights"


def test_where_workers_are_started_on_demand_the_last_one_known_speaks_for_them(redis: Redis, settings: Settings) -> None:
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


def test_over_http(stack: Stack) -> None:
    status, problem = submit(stack, prior="mmada_8b")
    assert (status, problem["code"]) == (409, "prior_not_loaded")
    assert "aps weights fetch mmada-8b-base" in problem["detail"]
    status, problem = submit(stack, prior="absent")
    assert (status, problem["code"]) == (422, "invalid_spec")


def test_a_job_beyond_the_workers_memory_is_not_queued(stack: Stack) -> None:
    import redis

    store = redis.Redis.from_url(stack.settings.redis_url)
    name, text = next(iter(store.hgetall("aps:workers").items()))
    entry = json.loads(text)
    store.hset("aps:workers", name, json.dumps({**entry, "job_bytes": entry["token_bytes"] * 100}))
    status, problem = submit(stack)
    store.hset("aps:workers", name, text)
    assert (status, problem["code"]) == (503, "insufficient_memory")
    assert "256 tokens take about" in problem["detail"]
    assert "at most 100 tokens" in problem["detail"]


def test_priors_are_named_with_commas_or_json(monkeypatch) -> None:
    for text in ("one,two", "one, two", '["one", "two"]'):
        monkeypatch.setenv("APS_PRIORS", text)
        assert Settings().priors == ["one", "two"]
