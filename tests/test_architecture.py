"""Allowed imports between packages, and heavy dependencies that must not be loaded."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "aps_core": {
        "fastapi",
        "starlette",
        "uvicorn",
        "celery",
        "kombu",
        "redis",
        "service",
        "worker",
    },
    "service": {"torch", "torchvision", "transformers", "safetensors", "worker"},
    "service/jobs": {"fastapi", "starlette", "celery", "kombu", "torch", "worker"},
    "aps_client": {
        "fastapi",
        "starlette",
        "uvicorn",
        "celery",
        "kombu",
        "torch",
        "transformers",
        "worker",
        "aps_cli",
    },
    "worker": {"fastapi", "starlette", "uvicorn"},
}
PACKAGES = ("aps_core", "aps_cli", "aps_client", "service", "worker")
MAX_LINES = 440


def sources(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found


def imports(path: Path) -> set[str]:
    """All modules a file imports, except under TYPE_CHECKING."""
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
        pending.extend(ast.iter_child_nodes(node))
    return found


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_dependencies_point_left(folder: str) -> None:
    for path in sources(folder):
        wrong = {name for name in imports(path) if name.split(".")[0] in FORBIDDEN[folder]}
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_the_worker_imports_only_the_job_contract_and_shared_modules() -> None:
    allowed = {
        "service",
        "service.settings",
        "service.telemetry",
        "service.telemetry.logs",
        "service.telemetry.build",
        "service.telemetry.tracing",
    }
    for path in sources("worker"):
        wrong = {
            name
            for name in imports(path)
            if name.split(".")[0] == "service" and not name.startswith("service.jobs")
        } - allowed
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_the_client_imports_only_the_contract() -> None:
    for path in sources("aps_client"):
        wrong = {
            name
            for name in imports(path)
            if name.split(".")[0] == "service" and name not in ("service.jobs", "service.api.views")
        }
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_the_job_contract_has_no_other_imports() -> None:
    for path in sources("service/jobs"):
        wrong = {
            name
            for name in imports(path)
            if name.startswith("service") and not name.startswith("service.jobs")
        }
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


@pytest.mark.parametrize(
    "module",
    [
        "service.main",
        "service.launch.processes",
        "aps_client",
        "worker.app",
        "worker.lifecycle",
        "worker.tasks",
        "aps_core.tasks",
    ],
)
def test_without_torch(module: str) -> None:
    """The API does not need torch. A worker's parent must not load it, because CUDA does not
    support forking.
    """
    probe = (
        f"import sys, {module}; print(*(name for name in ('torch', 'transformers') if name in"
        " sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "", f"import {module} loads {done.stdout}"


def test_files_stay_short() -> None:
    for path in [*(path for package in PACKAGES for path in sources(package))]:
        if not path.name.endswith("_net.py"):
            lines = len(path.read_text().splitlines())
            assert lines <= MAX_LINES, f"{path.relative_to(ROOT)} has {lines} lines"
