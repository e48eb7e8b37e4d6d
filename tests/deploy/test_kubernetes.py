"""k8s/base describes this system: valid, complete, hardened, and closed but where it must be open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.health import router
from service.supervisor import STOP_SECONDS

BASE = Path(__file__).parents[2] / "k8s" / "base"
KUSTOMIZATION = yaml.safe_load((BASE / "kustomization.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = [doc for name in KUSTOMIZATION["resources"] for doc in yaml.safe_load_all((BASE / name).read_text())]


def named(kind: str) -> dict[str, dict[str, Any]]:
    """Manifests of a kind by name."""
    return {doc["metadata"]["name"]: doc for doc in MANIFESTS if doc["kind"] == kind}


PODS = {name: doc["spec"]["template"] for name, doc in {**named("Deployment"), **named("StatefulSet")}.items()}


def labels_match(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector picks pods with ``labels``."""
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(labels.get(rule["key"]) in rule["values"] for rule in selector.get("matchExpressions", []))


def test_kustomization_lists_exactly_the_files() -> None:
    present = {path.name for path in BASE.iterdir()} - {"kustomization.yaml"}
    assert set(KUSTOMIZATION["resources"]) == present
    assert len(KUSTOMIZATION["resources"]) == len(present)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda doc: f"{doc['kind']}-{doc['metadata']['name']}")
def test_manifest_is_valid(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_the_system_is_complete() -> None:
    assert set(PODS) == {"redis", "api", "worker"}
    assert set(named("Service")) == set(PODS)
    assert set(named("PodDisruptionBudget")) == {"api", "worker"}


def test_everything_lives_in_the_one_restricted_namespace() -> None:
    (namespace,) = named("Namespace").values()
    assert namespace["metadata"]["name"] == KUSTOMIZATION["namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_images_are_pinned() -> None:
    used = [container["image"] for template in PODS.values() for container in template["spec"]["containers"]]
    ours = {image["name"]: image["newTag"] for image in KUSTOMIZATION["images"]}
    assert set(ours) == {image for image in used if ":" not in image}
    tags = [*ours.values(), *(image.split(":")[1] for image in used if ":" in image)]
    assert [tag for tag in tags if not re.match(r"\d+\.\d+\.\d+", tag)] == []


@pytest.mark.parametrize("name", PODS)
def test_mounts_lead_to_volumes_and_what_is_written_to_is_mounted(name: str) -> None:
    spec = PODS[name]["spec"]
    claims = named("StatefulSet").get(name, {}).get("spec", {}).get("volumeClaimTemplates", [])
    volumes = {volume["name"] for volume in spec.get("volumes", [])} | {claim["metadata"]["name"] for claim in claims}
    (container,) = spec["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert ("/data" if name == "redis" else "/tmp") in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_probes_ask_what_is_served() -> None:
    paths = {route.path for route in router.routes}  # type: ignore[attr-defined]
    for name in ("api", "worker"):
        (container,) = PODS[name]["spec"]["containers"]
        asked = [container[probe]["httpGet"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")]
        assert {probe["port"] for probe in asked} <= {port["name"] for port in container["ports"]}
        assert {probe["path"] for probe in asked} <= (paths if name == "api" else {"/metrics"})


def test_pods_listen_where_others_look() -> None:
    """One number for the program, its container and the policy that lets others in."""
    (worker,) = PODS["worker"]["spec"]["containers"]
    (metrics_port,) = (int(entry["value"]) for entry in worker["env"] if entry["name"] == "APS_METRICS_PORT")
    for name, port in {"api": 8000, "worker": metrics_port, "redis": 6379}.items():
        assert [entry["containerPort"] for entry in PODS[name]["spec"]["containers"][0]["ports"]] == [port]
        assert [entry["port"] for rule in allowed(name, "ingress") for entry in rule["ports"]] == [port]


def test_a_worker_has_time_for_its_step() -> None:
    assert PODS["worker"]["spec"]["terminationGracePeriodSeconds"] > STOP_SECONDS


@pytest.mark.parametrize("name", PODS)
def test_pod_is_hardened(name: str) -> None:
    spec = PODS[name]["spec"]
    pod = spec["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False  # a Service 'aps-metrics' would set APS_METRICS_PORT
    for container in spec["containers"]:
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
        assert container["resources"]["requests"]
        assert container["resources"]["limits"]["memory"]


def test_api_and_worker_share_user_settings_store_and_artifacts() -> None:
    api, worker = (PODS[name]["spec"] for name in ("api", "worker"))
    for shared in ("runAsUser", "fsGroup"):
        assert api["securityContext"][shared] == worker["securityContext"][shared]
    store = [[entry for entry in pod["containers"][0]["env"] if entry["name"] in ("REDIS_PASSWORD", "APS_REDIS_URL")] for pod in (api, worker)]
    assert store[0] == store[1]
    assert all(pod["containers"][0]["envFrom"] == [{"configMapRef": {"name": name}}] for pod in (api, worker) for name in named("ConfigMap"))
    claims = [{v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v} for pod in (api, worker)]
    assert claims == [set(named("PersistentVolumeClaim"))] * 2
    assert named("PersistentVolumeClaim")["aps-artifacts"]["spec"]["accessModes"] == ["ReadWriteMany"]  # pods on many nodes
    folder = named("ConfigMap")["aps-settings"]["data"]["APS_ARTIFACTS_DIR"]
    assert all(folder in {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]} for pod in (api, worker))


def test_the_password_is_only_referred_to() -> None:
    assert not named("Secret")
    for name, template in PODS.items():
        (entry,) = (entry for entry in template["spec"]["containers"][0]["env"] if entry["name"] == "REDIS_PASSWORD")
        assert entry["valueFrom"] == {"secretKeyRef": {"name": "aps-redis", "key": "password"}}, name


def test_a_worker_has_one_gpu_and_no_rollout_needs_a_second() -> None:
    worker = named("Deployment")["worker"]["spec"]
    assert worker["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert worker["strategy"]["rollingUpdate"]["maxSurge"] == 0
    assert [rule["key"] for rule in worker["template"]["spec"]["tolerations"]] == ["nvidia.com/gpu"]


def test_selectors_pick_the_pods_they_mean() -> None:
    for name, doc in {**named("Service"), **named("PodDisruptionBudget")}.items():
        selector = doc["spec"]["selector"]
        if "matchLabels" not in selector:
            selector = {"matchLabels": selector}
        assert [pod for pod, template in PODS.items() if labels_match(selector, template["metadata"]["labels"])] == [name]


def test_services_lead_to_ports_that_containers_name() -> None:
    for name, doc in named("Service").items():
        ports = {port["name"] for port in PODS[name]["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in doc["spec"]["ports"]} <= ports


def allowed(pod: str, direction: str) -> list[dict[str, Any]]:
    """Rules of all policies for a pod in one direction, 'ingress' or 'egress'."""
    labels = PODS[pod]["metadata"]["labels"]
    policies = [doc["spec"] for doc in named("NetworkPolicy").values() if labels_match(doc["spec"]["podSelector"], labels)]
    assert any(direction.capitalize() in policy["policyTypes"] for policy in policies)
    return [rule for policy in policies for rule in policy.get(direction, [])]


def test_only_api_and_workers_reach_the_store_and_nobody_the_internet() -> None:
    (entry,) = allowed("redis", "ingress")
    (peer,) = entry["from"]
    assert {pod for pod, template in PODS.items() if labels_match(peer["podSelector"], template["metadata"]["labels"])} == {"api", "worker"}
    assert allowed("redis", "egress") == []
    for pod in ("api", "worker"):
        rules = allowed(pod, "egress")
        assert sorted({port["port"] for rule in rules for port in rule["ports"]}) == [53, 6379]
        assert all(peer.keys() <= {"podSelector", "namespaceSelector"} for rule in rules for peer in rule["to"])


def test_a_pod_that_nobody_thought_of_may_not_talk_at_all() -> None:
    (policy,) = (doc["spec"] for doc in named("NetworkPolicy").values() if doc["spec"]["podSelector"] == {})
    assert policy == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
