"""docker-compose.yml is valid, durable, hardened and not reachable from outside."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from compose_spec.models import ComposeSpecification, Service

from service.launch.supervisor import STOP_SECONDS

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"


@pytest.fixture(scope="module")
def services() -> dict[str, Service]:
    """The services, parsed strictly: unknown keys are errors."""
    described = yaml.safe_load(COMPOSE.read_text())
    known = {name: value for name, value in described.items() if not name.startswith("x-")}
    found = ComposeSpecification.model_validate(known, extra="forbid").services
    assert found is not None
    return found


def started(services: dict[str, Service], profile: str) -> set[str]:
    """Names of the services started by ``--profile``."""
    return {
        name
        for name, service in services.items()
        if not service.profiles or profile in service.profiles
    }


def test_observability_mounts_the_configuration_of_this_repository(
    services: dict[str, Service],
) -> None:
    assert started(services, "observability") == {"redis", "api", "prometheus", "grafana"}
    for name in ("prometheus", "grafana"):
        for volume in yaml.safe_load(COMPOSE.read_text())["services"][name]["volumes"]:
            source, _, *mode = volume.split(":")
            if source.startswith("./"):
                assert (COMPOSE.parent / source).exists()
                assert mode == ["ro"]
    scraped = yaml.safe_load((COMPOSE.parent / "docker/observability/prometheus.yml").read_text())
    assert scraped["rule_files"] == ["/etc/prometheus/alerts.yml"]
    jobs = {job["job_name"]: job for job in scraped["scrape_configs"]}
    assert jobs["aps-api"]["static_configs"] == [{"targets": ["api:8000"]}]
    assert {name for entry in jobs["aps-worker"]["dns_sd_configs"] for name in entry["names"]} == {
        "worker-cpu",
        "worker-gpu",
    }


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_each_profile_starts_store_api_and_one_worker(
    services: dict[str, Service], profile: str
) -> None:
    assert started(services, profile) == {"redis", "api", f"worker-{profile}"}


def test_only_the_gpu_worker_requests_a_gpu() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert {name for name, service in services.items() if "deploy" in service} == {"worker-gpu"}
    (device,) = services["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert services["worker-gpu"]["command"][-1] == "cuda"
    assert services["worker-cpu"]["command"][-1] == "cpu"


def test_store_and_workers_are_not_published_and_others_only_on_loopback() -> None:
    described = yaml.safe_load(COMPOSE.read_text())
    published = {
        name: service["ports"]
        for name, service in described["services"].items()
        if "ports" in service
    }
    assert set(published) == {"api", "prometheus", "grafana"}
    assert published["api"] == ["${APS_BIND:-127.0.0.1}:8000:8000"]
    others = [*published["prometheus"], *published["grafana"]]
    assert all(port.startswith("127.0.0.1:") for port in others)
    assert described["networks"]["inside"] == {"internal": True}
    assert {
        name for name, service in described["services"].items() if service["networks"] == ["inside"]
    } == {"redis", "worker-cpu", "worker-gpu"}


def test_containers_are_hardened_and_have_a_stop_grace_period() -> None:
    for name, service in yaml.safe_load(COMPOSE.read_text())["services"].items():
        assert service["read_only"] is True, name
        assert service["init"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["tmpfs"] == ["/tmp"], name
        assert service["stop_grace_period"], name
        assert service.get("user") != "root", name


def test_workers_have_time_to_drain() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for name in ("worker-cpu", "worker-gpu"):
        assert services[name]["stop_signal"] == "SIGTERM"
        assert int(services[name]["stop_grace_period"].removesuffix("s")) > STOP_SECONDS


def test_images_are_pinned_and_own_images_are_built() -> None:
    for name, service in yaml.safe_load(COMPOSE.read_text())["services"].items():
        assert re.search(r":(\$\{APS_VERSION:-)?v?\d+\.\d+\.\d+", service["image"]), name
        if "aps-" in service["image"]:
            prefix, _, rest = service["image"].partition("aps-")
            assert prefix == "${APS_REGISTRY:-}"
            image = rest.split(":")[0]
            assert service["build"] == {"context": ".", "dockerfile": f"docker/Dockerfile.{image}"}


def test_api_and_workers_wait_for_the_store_and_share_artifacts() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for name in ("api", "worker-cpu", "worker-gpu"):
        assert services[name]["depends_on"] == {"redis": {"condition": "service_healthy"}}
        assert set(services["api"]["volumes"]) <= set(services[name]["volumes"])
        assert urlsplit(services[name]["environment"]["APS_REDIS_URL"]).hostname == "redis"
    # valkey-cli exits with status 0 even if the server rejects the command, so check its output
    assert services["redis"]["healthcheck"]["test"] == [
        "CMD-SHELL",
        "valkey-cli ping | grep -q PONG",
    ]
    assert services["redis"]["volumes"] == ["redis:/data"]
    assert services["redis"]["user"] == "valkey"
