"""The manifests in k8s/, rendered by kustomize, are valid, complete, hardened and restricted."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import promql_parser
import pytest
import yaml

from service.api.system.health import router
from service.launch.supervisor import STOP_SECONDS
from tests.deploy.crds import SCHEMAS

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
BASE = K8S / "base"
OVERLAYS = sorted(folder.name for folder in (K8S / "overlays").iterdir())
KUBECTL = Path(sys.executable).with_name("kubectl")
KUSTOMIZATION = yaml.safe_load((BASE / "kustomization.yaml").read_text())

Manifest = dict[str, Any]


@cache
def rendered(folder: str) -> list[Manifest]:
    """Manifests that kustomize renders from a folder of k8s/."""
    done = subprocess.run(
        [KUBECTL, "kustomize", str(K8S / folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    """Manifests of one kind by name."""
    return {doc["metadata"]["name"]: doc for doc in manifests if doc["kind"] == kind}


def named(kind: str) -> dict[str, Manifest]:
    """Manifests of the base."""
    return of_kind(rendered("base"), kind)


def pods_of(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Pod templates by the name of their controller."""
    return {
        name: doc["spec"]["template"]
        for kind in ("Deployment", "StatefulSet", "Job")
        for name, doc in of_kind(manifests, kind).items()
    }


PODS = pods_of(rendered("base"))
EVERYTHING = [
    (folder, manifest)
    for folder in ("base", *(f"overlays/{name}" for name in OVERLAYS))
    for manifest in rendered(folder)
]


def labels_match(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector matches pods with ``labels``."""
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(
        labels.get(rule["key"]) in rule["values"] for rule in selector.get("matchExpressions", [])
    )


def test_kustomization_lists_exactly_the_files() -> None:
    present = {path.name for path in BASE.iterdir()} - {"kustomization.yaml"}
    assert set(KUSTOMIZATION["resources"]) == present
    assert len(KUSTOMIZATION["resources"]) == len(present)


@pytest.mark.parametrize(
    ("folder", "manifest"),
    EVERYTHING,
    ids=[f"{folder}-{doc['kind']}-{doc['metadata']['name']}" for folder, doc in EVERYTHING],
)
def test_manifest_is_valid(folder: str, manifest: Manifest) -> None:
    if manifest["kind"] in SCHEMAS:
        jsonschema.validate(manifest, SCHEMAS[manifest["kind"]])
    else:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_the_system_is_complete() -> None:
    assert set(PODS) == {"redis", "api", "worker", "webhooks"}
    assert set(named("Service")) == {"redis", "api", "worker"}
    assert set(named("PodDisruptionBudget")) == {"api", "worker"}


def test_all_resources_are_in_the_restricted_namespace() -> None:
    (namespace,) = named("Namespace").values()
    assert namespace["metadata"]["name"] == KUSTOMIZATION["namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_images_are_pinned() -> None:
    used = {
        container["image"]
        for name in OVERLAYS
        for pod in pods_of(rendered(f"overlays/{name}")).values()
        for container in pod["spec"]["containers"]
    }
    assert [image for image in used if not re.search(r":\d+\.\d+\.\d+", image)] == []
    names = {image.split(":")[0].removeprefix("registry.example.com/") for image in used}
    assert names == {"aps-api", "aps-worker", "valkey/valkey"}


@pytest.mark.parametrize("name", PODS)
def test_mounts_have_volumes_and_writable_folders_are_mounted(name: str) -> None:
    spec = PODS[name]["spec"]
    claims = named("StatefulSet").get(name, {}).get("spec", {}).get("volumeClaimTemplates", [])
    volumes = {volume["name"] for volume in spec.get("volumes", [])} | {
        claim["metadata"]["name"] for claim in claims
    }
    (container,) = spec["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert ("/data" if name == "redis" else "/tmp") in {
        mount["mountPath"] for mount in container["volumeMounts"]
    }


def test_probes_use_existing_endpoints() -> None:
    paths = {"api": {route.path for route in router.routes}, "worker": {"/livez", "/readyz"}}  # type: ignore[attr-defined]
    for name in ("api", "worker"):
        (container,) = PODS[name]["spec"]["containers"]
        asked = [
            container[probe]["httpGet"]
            for probe in ("startupProbe", "readinessProbe", "livenessProbe")
        ]
        assert {probe["port"] for probe in asked} <= {port["name"] for port in container["ports"]}
        assert {probe["path"] for probe in asked} <= paths[name]


def test_ports_agree_between_program_container_and_policy() -> None:
    """Program, container and network policy use the same port number."""
    (worker,) = PODS["worker"]["spec"]["containers"]
    (metrics_port,) = (
        int(entry["value"]) for entry in worker["env"] if entry["name"] == "APS_METRICS_PORT"
    )
    for name, port in {"api": 8000, "worker": metrics_port, "redis": 6379}.items():
        assert [
            entry["containerPort"] for entry in PODS[name]["spec"]["containers"][0]["ports"]
        ] == [port]
        assert [entry["port"] for rule in allowed(name, "ingress") for entry in rule["ports"]] == [
            port
        ]


def test_worker_pods_have_time_to_drain() -> None:
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
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert (
            name == "webhooks"
            or {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
        )
        assert container["resources"]["requests"]
        assert container["resources"]["limits"]["memory"]


def test_api_and_worker_share_user_settings_store_and_artifacts() -> None:
    api, worker = (PODS[name]["spec"] for name in ("api", "worker"))
    for shared in ("runAsUser", "fsGroup"):
        assert api["securityContext"][shared] == worker["securityContext"][shared]
    store = [
        [
            entry
            for entry in pod["containers"][0]["env"]
            if entry["name"] in ("REDIS_PASSWORD", "APS_REDIS_URL")
        ]
        for pod in (api, worker)
    ]
    assert store[0] == store[1]
    assert all(
        pod["containers"][0]["envFrom"] == [{"configMapRef": {"name": name}}]
        for pod in (api, worker)
        for name in named("ConfigMap")
    )
    claims = [
        {
            v["persistentVolumeClaim"]["claimName"]
            for v in pod["volumes"]
            if "persistentVolumeClaim" in v
        }
        for pod in (api, worker)
    ]
    assert claims == [set(named("PersistentVolumeClaim"))] * 2
    # pods on many nodes
    assert named("PersistentVolumeClaim")["aps-artifacts"]["spec"]["accessModes"] == [
        "ReadWriteMany"
    ]
    folder = named("ConfigMap")["aps-settings"]["data"]["APS_ARTIFACTS_DIR"]
    assert all(
        folder in {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        for pod in (api, worker)
    )


def test_the_password_is_only_referenced() -> None:
    assert not named("Secret")
    for name, template in PODS.items():
        (entry,) = (
            entry
            for entry in template["spec"]["containers"][0]["env"]
            if entry["name"] == "REDIS_PASSWORD"
        )
        assert entry["valueFrom"] == {"secretKeyRef": {"name": "aps-redis", "key": "password"}}, (
            name
        )


def test_gpu_workers_have_one_gpu_and_weights_and_roll_out_without_surge() -> None:
    gpu = rendered("overlays/gpu")
    worker = of_kind(gpu, "Deployment")["worker"]["spec"]
    (container,) = worker["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert worker["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert [rule["key"] for rule in worker["template"]["spec"]["tolerations"]] == ["nvidia.com/gpu"]
    settings = of_kind(gpu, "ConfigMap")["aps-settings"]["data"]
    assert settings["APS_DEVICE"] == "cuda"
    assert "nvidia" not in (BASE / "worker.yaml").read_text()
    (fetch,) = pods_of(gpu)["weights"]["spec"]["containers"]
    folders = [
        {entry["name"]: entry.get("value") for entry in each["env"]}["APS_WEIGHTS_DIR"]
        for each in (container, fetch)
    ]
    assert folders[0] == folders[1]
    mounts = [
        {mount["name"]: mount for mount in each["volumeMounts"]}["weights"]
        for each in (container, fetch)
    ]
    assert [mount["mountPath"] for mount in mounts] == folders
    assert mounts[0]["readOnly"] is True


def test_workers_scale_with_predicted_work_including_to_zero() -> None:
    gpu = rendered("overlays/gpu")
    (scaled,) = of_kind(gpu, "ScaledObject").values()
    assert scaled["spec"]["scaleTargetRef"] == {"name": "worker"}
    assert "replicas" not in of_kind(gpu, "Deployment")["worker"]["spec"], (
        "applying the manifests again must not undo the scaling"
    )
    assert (scaled["spec"]["minReplicaCount"], scaled["spec"]["fallback"]["replicas"]) == (0, 1)
    settings = of_kind(gpu, "ConfigMap")["aps-settings"]["data"]
    assert settings["APS_SCALE_TO_ZERO"] == "true", (
        "or nobody could submit what would start a worker"
    )
    (trigger,) = scaled["spec"]["triggers"]
    promql_parser.parse(trigger["metadata"]["query"])
    assert (
        f'aps_queue_predicted_seconds{{prior="{settings["APS_PRIORS"]}"}}'
        in trigger["metadata"]["query"]
    )
    assert scaled["spec"]["cooldownPeriod"] >= 300, "longer than loading a prior"


def test_the_cluster_has_the_alerts_and_scrapes_every_pod_with_metrics() -> None:
    gpu = rendered("overlays/gpu")
    (rules,) = of_kind(gpu, "PrometheusRule").values()
    assert rules["spec"] == yaml.safe_load(
        (ROOT / "docker" / "observability" / "alerts.yml").read_text()
    )
    for name, monitor in of_kind(gpu, "PodMonitor").items():
        (pod,) = (
            pod
            for pod, template in pods_of(gpu).items()
            if labels_match(monitor["spec"]["selector"], template["metadata"]["labels"])
        )
        assert name == f"aps-{pod}"
        ports = {port["name"] for port in pods_of(gpu)[pod]["spec"]["containers"][0]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= ports


def test_the_cpu_overlay_needs_one_node_and_no_secrets() -> None:
    small = rendered("overlays/cpu-kind")
    assert of_kind(small, "PersistentVolumeClaim")["aps-artifacts"]["spec"]["accessModes"] == [
        "ReadWriteOnce"
    ]
    assert set(of_kind(small, "Secret")) == {"aps-redis"}
    assert of_kind(small, "ConfigMap")["aps-settings"]["data"]["APS_DEVICE"] == "cpu"
    assert not any("nvidia.com/gpu" in str(pod) for pod in pods_of(small).values())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlays_keep_pods_hardened(overlay: str) -> None:
    for name, template in pods_of(rendered(f"overlays/{overlay}")).items():
        assert template["spec"]["securityContext"]["runAsNonRoot"] is True, name
        for container in template["spec"]["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_selectors_match_the_intended_pods() -> None:
    for name, doc in {**named("Service"), **named("PodDisruptionBudget")}.items():
        selector = doc["spec"]["selector"]
        if "matchLabels" not in selector:
            selector = {"matchLabels": selector}
        assert [
            pod
            for pod, template in PODS.items()
            if labels_match(selector, template["metadata"]["labels"])
        ] == [name]


def test_services_target_named_container_ports() -> None:
    for name, doc in named("Service").items():
        ports = {port["name"] for port in PODS[name]["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in doc["spec"]["ports"]} <= ports


def allowed(pod: str, direction: str) -> list[dict[str, Any]]:
    """Rules of all network policies for a pod in one direction, 'ingress' or 'egress'."""
    labels = PODS[pod]["metadata"]["labels"]
    policies = [
        doc["spec"]
        for doc in named("NetworkPolicy").values()
        if labels_match(doc["spec"]["podSelector"], labels)
    ]
    assert any(direction.capitalize() in policy["policyTypes"] for policy in policies)
    return [rule for policy in policies for rule in policy.get(direction, [])]


def test_only_api_and_workers_reach_the_store_and_none_the_internet() -> None:
    (entry,) = allowed("redis", "ingress")
    (peer,) = entry["from"]
    assert {
        pod
        for pod, template in PODS.items()
        if labels_match(peer["podSelector"], template["metadata"]["labels"])
    } == {"api", "worker", "webhooks"}
    assert allowed("redis", "egress") == []
    for pod in ("api", "worker"):
        rules = allowed(pod, "egress")
        assert sorted({port["port"] for rule in rules for port in rule["ports"]}) == [53, 6379]
        assert all(
            peer.keys() <= {"podSelector", "namespaceSelector"}
            for rule in rules
            for peer in rule["to"]
        )


def test_other_pods_have_no_network_access() -> None:
    (policy,) = (
        doc["spec"] for doc in named("NetworkPolicy").values() if doc["spec"]["podSelector"] == {}
    )
    assert policy == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_only_the_webhook_sender_reaches_the_internet_and_no_private_address() -> None:
    (rule,) = (rule for rule in allowed("webhooks", "egress") if "ipBlock" in str(rule))
    (peer,) = rule["to"]
    assert rule["ports"] == [{"port": 443, "protocol": "TCP"}]
    inside = {
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
        "127.0.0.0/8",
        "100.64.0.0/10",
    }
    assert inside <= set(peer["ipBlock"]["except"])
    assert [
        entry["value"]
        for entry in PODS["api"]["spec"]["containers"][0]["env"]
        if entry["name"] == "APS_SEND_WEBHOOKS"
    ] == ["false"]
