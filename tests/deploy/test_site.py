"""An installation of one's own: five values to change, an ingress or a gateway, and releases."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

import aps_core
from service.settings import Settings
from tests.deploy.crds import SCHEMAS

ROOT = Path(__file__).parents[2]
SITE = ROOT / "k8s" / "overlays" / "site" / "kustomization.yaml"
KUBECTL = Path(sys.executable).with_name("kubectl")
CHANGES = {
    "registry.example.com": "images.internal/team",
    "password=changeme": "password=0123456789abcdef",
    "https://aps.example.com": "https://pictures.internal",
    "APS_PRIORS: mmada_8b": "APS_PRIORS: mmada_8b,dream_7b",
    '"value": "shared"': '"value": "nfs"',
}
"""The five values, and what an administrator might write in their place."""


def rendered(tmp_path: Path, text: str) -> list[dict[str, Any]]:
    """What ``kubectl apply -k`` would send for a changed copy of the overlay."""
    folder = tmp_path / "k8s" / "overlays" / "site"
    folder.mkdir(parents=True)
    (folder / "kustomization.yaml").write_text(text)
    for name in ("k8s/base", "k8s/components", "k8s/overlays/gpu"):
        (tmp_path / name).symlink_to(ROOT / name)
    copied = subprocess.run(
        ["cp", "-rL", str(tmp_path), str(tmp_path.with_name(f"{tmp_path.name}-copy"))],
        check=False,
        capture_output=True,
    )
    assert copied.returncode == 0, copied.stderr
    place = tmp_path.with_name(f"{tmp_path.name}-copy") / "k8s" / "overlays" / "site"
    done = subprocess.run(
        [KUBECTL, "kustomize", str(place)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.mark.parametrize("way", ["ingress", "gateway"])
def test_five_values_make_an_installation(tmp_path: Path, way: str) -> None:
    text = SITE.read_text()
    for number, (old, new) in enumerate(CHANGES.items(), 1):
        assert old in text, f"value {number}"
        assert f"# {number}. " in text
        text = text.replace(old, new)
    text = text.replace("components/ingress  #", f"components/{way}  #")
    manifests = rendered(tmp_path, text)
    for manifest in manifests:
        if manifest["kind"] in SCHEMAS:
            jsonschema.validate(manifest, SCHEMAS[manifest["kind"]])
        else:
            kubernetes_validate.validate(
                manifest, kubernetes_validate.latest_version(), strict=True
            )
    everything = yaml.safe_dump_all(manifests)
    assert "example.com" not in everything, "nothing else has to be changed"
    assert "changeme" not in everything
    assert "HOST" not in re.findall(r"[A-Z_]+", everything)
    outside = [doc for doc in manifests if doc["kind"] in ("Ingress", "HTTPRoute")]
    assert [doc["kind"] for doc in outside] == [{"ingress": "Ingress"}.get(way, "HTTPRoute")]
    assert "pictures.internal" in str(outside)
    images = re.findall(r"image: (\S*aps-\w+\S*)", everything)
    assert {image.rpartition(":")[0] for image in images} == {
        "images.internal/team/aps-api",
        "images.internal/team/aps-worker",
    }
    claims = [doc for doc in manifests if doc["kind"] == "PersistentVolumeClaim"]
    assert {doc["spec"]["storageClassName"] for doc in claims} == {"nfs"}


def test_the_environment_of_compose_names_settings_that_exist() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    compose = (ROOT / "docker-compose.yml").read_text()
    for name in values:
        assert f"${{{name}:-" in compose, f"{name} changes nothing"
    assert values["APS_VERSION"] == aps_core.__version__
    assert sum(bool(re.match(r"# \d\. ", line)) for line in lines) == 5
    settings = Settings(auth=values["APS_AUTH"], host="0.0.0.0", priors=values["APS_PRIORS"])
    assert settings.auth_required


def test_workflows_pin_what_they_use_and_a_pull_request_runs_what_a_release_runs() -> None:
    found = {
        path.stem: yaml.safe_load(path.read_text())
        for path in (ROOT / ".github/workflows").glob("*.yml")
    }
    for workflow in found.values():
        for step in (step for job in workflow["jobs"].values() for step in job["steps"]):
            if "uses" in step:
                assert re.search(r"@v\d+$|@[0-9a-f]{40}$", step["uses"]), step["uses"]
    pull_request, release = (
        [step.get("run") for step in found[name]["jobs"]["test"]["steps"]]
        for name in ("pull-request", "release")
    )
    assert ".ci/run" in pull_request
    assert set(pull_request) <= set(release)


def test_the_hook_before_a_commit_runs_the_fast_check() -> None:
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    [hook] = repository["hooks"]
    assert hook["entry"] == "scripts/check --fast"
    done = subprocess.run(
        [ROOT / "scripts/check", "--fast"], capture_output=True, text=True, check=False
    )
    assert "formatted" in done.stdout, done.stderr
    assert "mypy" not in done.stdout


def test_a_release_builds_both_images_of_the_tagged_version_and_lists_their_digests() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = "\n".join(step.get("run", "") for step in steps)
    assert "docker/Dockerfile.$image" in commands
    assert "for image in api worker" in commands
    assert ".ci/run" in commands
    assert "digests.txt" in commands
    for name, pattern in (
        ("docker-compose.yml", r"APS_VERSION:-([\d.]+)"),
        ("k8s/base/kustomization.yaml", r"newTag: ([\d.]+)"),
        ("CHANGELOG.md", r"## \[([\d.]+)\]"),
        ("CITATION.cff", r"\nversion: ([\d.]+)"),
        ("pyproject.toml", r'version = "([\d.]+)"'),
    ):
        found = re.findall(pattern, (ROOT / name).read_text())
        assert found, name
        assert found[0] == aps_core.__version__, name
