"""How an attempt at a job is counted when the job store is away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY
from redis.exceptions import ConnectionError as RedisConnectionError

from service.jobs import Claim, Job, open_store
from service.launch.processes import free_port
from service.settings import Settings
from service.telemetry.tracing import Span
from worker.job_run import JobRun

VALID = {"type": "generate", "prior": "embedded"}
INVALID = {"type": "generate", "prior": "embedded", "steps": "many"}


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize("spec", [VALID, INVALID], ids=["attempt", "failure"])
def test_an_outage_of_the_store_is_neither_a_lost_lease_nor_a_failure(
    settings: Settings, spec: dict[str, Any]
) -> None:
    """The store is away when the attempt reads its checkpoint, or when its failure is recorded."""
    nobody = settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{free_port()}"})
    store, _ = open_store(nobody, retries=0)
    job = Job(id="1", task="generate", prior="embedded", spec=spec, inputs={})
    outcomes = [
        ("aps_leases_lost_total", {}),
        *(
            ("aps_job_duration_seconds_count", {"prior": "embedded", "status": status})
            for status in ("lost", "failed", "store_away")
        ),
    ]
    before = [counted(name, **labels) for name, labels in outcomes]
    worker: Any = SimpleNamespace(store=store, artifacts=None)
    with pytest.raises(RedisConnectionError):
        JobRun(worker, Claim("1", 1), job, Span("")).run()
    after = [counted(name, **labels) for name, labels in outcomes]
    assert [now - then for now, then in zip(after, before, strict=True)] == [0, 0, 0, 1]
