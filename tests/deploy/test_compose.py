"""docker-compose.yml describes this system: valid, durable, hardened, and closed to the outside."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from compose_spec import ComposeSpecification, Service

from service.supervisor import STOP_SECONDS

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"


@pytest.fixture(scope="module")
def services() -> dict[str, Service]:
    """The services, under a strict reading: an unknown key is an error."""
    described = yaml.safe_load(COMPOSE.read_text())
    known = {name: value for name, value in described.items() if not name.startswith("x-")}
    found = ComposeSpecification.model_validate(known, extra="forbid").services
    assert found is not None
    return found


def started(services: dict[str, Service], profile: str) -> set[str]:
    """Names of what ``--profile`` starts."""
    return {name for name, service in services.items() if not service.profiles or profile in service.profiles}


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_a_profile_starts_store_api_and_one_worker(services: dict[str, Service], profile: str) -> None:
    assert started(services, profile) == {"redis", "api", f"worker-{profile}"}


def test_only_the_gpu_worker_asks_for_a_gpu() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert {name for name, service in services.items() if "deploy" in service} == {"worker-gpu"}
    (device,) = services["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    assert services["worker-gpu"]["command"][-1] == "cuda"
    assert services["worker-cpu"]["command"][-1] == "cpu"


def test_only_the_api_is_published_and_only_to_this_machine() -> None:
    described = yaml.safe_load(COMPOSE.read_text())
    published = {name: service["ports"] for name, service in described["services"].items() if "ports" in service}
    assert published == {"api": ["127.0.0.1:8000:8000"]}
    assert described["networks"]["inside"] == {"internal": True}
    assert [name for name, service in described["services"].items() if service["networks"] != ["inside"]] == ["api"]


def test_every_container_is_hardened_and_given_time_to_stop() -> None:
    for name, service in yaml.safe_load(COMPOSE.read_text())["services"].items():
        assert service["read_only"] is True, name
        assert service["init"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["tmpfs"] == ["/tmp"], name
        assert service["stop_grace_period"], name
        assert service.get("user") != "root", name


def test_a_worker_is_asked_to_stop_and_has_time_for_its_step() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for name in ("worker-cpu", "worker-gpu"):
        assert services[name]["stop_signal"] == "SIGTERM"
        assert int(services[name]["stop_grace_period"].removesuffix("s")) > STOP_SECONDS


def test_images_are_pinned_and_ours_are_built_here() -> None:
    for name, service in yaml.safe_load(COMPOSE.read_text())["services"].items():
        assert re.search(r":\d+\.\d+\.\d+", service["image"]), name
        if name != "redis":
            assert service["build"] == {"context": ".", "dockerfile": f"docker/Dockerfile.{name.split('-')[0]}"}


def test_api_and_workers_wait_for_the_store_and_share_the_artifacts() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for name in ("api", "worker-cpu", "worker-gpu"):
        assert services[name]["depends_on"] == {"redis": {"condition": "service_healthy"}}
        assert services[name]["volumes"] == services["api"]["volumes"]
        assert urlsplit(services[name]["environment"]["APS_REDIS_URL"]).hostname == "redis"
    # valkey-cli ends with status 0 even when the server refuses, so the answer is what counts
    assert services["redis"]["healthcheck"]["test"] == ["CMD-SHELL", "valkey-cli ping | grep -q PONG"]
    assert services["redis"]["volumes"] == ["redis:/data"]
    assert services["redis"]["user"] == "valkey"
