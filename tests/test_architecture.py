"""Allowed imports between packages, and heavy dependencies that must not be loaded."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

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
        "aps_contract",
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
        "redis",
        "fsspec",
        "service",
        "worker",
        "aps_cli",
    },
    "worker": {"fastapi", "starlette", "uvicorn"},
}
PACKAGES = ("aps_core", "aps_contract", "aps_cli", "aps_client", "service", "worker")
FOLDERS = (*PACKAGES, "benchmarks", "research", "training", "examples", "scripts")
MAX_LINES = 300
Node = TypeVar("Node", bound=ast.AST)


def sources(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found


def imports(path: Path, members: bool = False) -> set[str]:
    """All modules a file imports, except under TYPE_CHECKING; with ``members``, also the names that
    it imports from them, which may be modules.
    """
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
            module = "." * node.level + (node.module or "")
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names if members)}
        pending.extend(ast.iter_child_nodes(node))
    return found


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_dependencies_point_left(folder: str) -> None:
    for path in sources(folder):
        wrong = {name for name in imports(path) if name.split(".")[0] in FORBIDDEN[folder]}
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_the_worker_imports_only_the_job_store_and_shared_modules() -> None:
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


def test_the_contract_needs_only_pydantic() -> None:
    allowed = {"aps_contract", "pydantic", *sys.stdlib_module_names}
    for path in sources("aps_contract"):
        wrong = {name for name in imports(path) if name.split(".")[0] not in allowed}
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_the_job_store_imports_nothing_else_of_the_service() -> None:
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


def modules(packages: Iterable[str]) -> dict[str, set[str]]:
    """The packages' modules, and which of them each imports, inside functions too."""
    names = {}
    for path in (path for package in packages for path in sources(package)):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        names[name.removesuffix(".__init__")] = path
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        found[name] = {target for target in imports(path, members=True) if target in names} - {name}
    return found


def test_no_import_goes_in_a_circle() -> None:
    """Not even one that a function makes when it is called."""
    open_ends = modules(PACKAGES)
    # a package's own front imports its members, which import its base: a member's import of its
    # package is no circle of its own
    for name, targets in open_ends.items():
        open_ends[name] = {each for each in targets if not name.startswith(f"{each}.")}
    while free := [name for name, targets in open_ends.items() if not targets & open_ends.keys()]:
        for name in free:
            del open_ends[name]
    assert not open_ends, open_ends


def test_the_client_loads_neither_service_nor_redis_nor_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import aps_client"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "aps_client.sync" in loaded
    assert not {"service", "redis", "fsspec", "torch", "celery", "fastapi"} & loaded


def test_nothing_depends_on_a_study() -> None:
    own = ("research", "tests/research")
    for path in (path for folder in (*FOLDERS, "tests") for path in sources(folder)):
        place = path.relative_to(ROOT)
        if not place.as_posix().startswith(own):
            wrong = {name for name in imports(path) if name.split(".")[0] == "research"}
            assert not wrong, f"{place} imports {wrong}"


def test_every_study_says_when_its_result_was_made_and_when_it_may_go() -> None:
    folders = {path for path in (ROOT / "research").iterdir() if path.is_dir()}
    studies = {path for path in folders if path.name not in ("common", "__pycache__")}
    assert studies
    for folder in studies:
        page = (folder / "README.md").read_text()
        for line in (
            r"^\*\*Question\.\*\* ",
            r"^\*\*Decided\.\*\* ",
            r"^```sh$",
            r"^\*\*Result of\*\* \d{4}-\d\d-\d\d",
            r"^\*\*May go\*\* once ",
        ):
            assert re.search(line, page, re.MULTILINE), f"{folder.name} lacks {line}"


def test_files_stay_short() -> None:
    for path in (path for folder in FOLDERS for path in sources(folder)):
        if not path.name.endswith("_net.py"):
            lines = len(path.read_text().splitlines())
            assert lines <= MAX_LINES, f"{path.relative_to(ROOT)} has {lines} lines"


def nodes(kind: type[Node]) -> Iterator[tuple[str, Node]]:
    """All syntax nodes of a kind, with file and line."""
    for path in (path for folder in FOLDERS for path in sources(folder)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, kind):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", node


def large_records() -> set[str]:
    """Names of the dataclasses and named tuples of more than four fields, if no other class has the
    same name.
    """
    large, other = set(), {"Progress"}  # rich has a class of this name
    for _, node in nodes(ast.ClassDef):
        about = [*map(ast.unparse, node.decorator_list), *map(ast.unparse, node.bases)]
        record = any("dataclass" in each or each == "NamedTuple" for each in about)
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        (large if record and len(fields) > 4 else other).add(node.name)
    return large - other


def test_records_of_more_than_four_fields_are_built_by_keyword() -> None:
    known = large_records()
    assert {"InnerInfo", "Blur"} <= known
    for place, node in nodes(ast.Call):
        if len(node.args) > 4 and ast.unparse(node.func).split(".")[-1] in known:
            raise AssertionError(f"{place} builds a record by position: {ast.unparse(node)}")


def test_attributes_are_assigned_one_by_one() -> None:
    for place, node in nodes(ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            own = [each for each in target.elts if ast.unparse(each).startswith("self.")]
            assert len(own) < 2, f"{place} assigns several attributes at once"
