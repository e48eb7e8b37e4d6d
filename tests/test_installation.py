"""Each install line of the README provides the packages that its part of the software imports."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def own(extra: str) -> set[str]:
    """Names of the distributions that ``pip install '.[extra]'`` asks for."""
    lines = [*PROJECT["dependencies"]]
    lines += PROJECT["optional-dependencies"][extra] if extra else []
    found: set[str] = set()
    for wanted in map(Requirement, lines):
        if wanted.name == "aps":
            found |= set().union(*map(own, wanted.extras))
        else:
            found.add(canonicalize_name(wanted.name))
            found |= below(wanted.name, frozenset(wanted.extras))
    return found


@cache
def below(distribution: str, extras: frozenset[str]) -> frozenset[str]:
    """Names of the distributions that an installed one requires, directly or not."""
    found: set[str] = set()
    for wanted in map(Requirement, requires(distribution) or ()):
        chosen = [{"extra": extra} for extra in extras or {""}]
        if wanted.marker is None or any(map(wanted.marker.evaluate, chosen)):
            found.add(canonicalize_name(wanted.name))
            found |= below(wanted.name, frozenset(wanted.extras))
    return frozenset(found)


def without(extra: str) -> list[str]:
    """Modules that the other extras install, but ``pip install '.[extra]'`` does not."""
    left_out = own("service") | own("worker")
    left_out -= own(extra)
    return [
        module
        for module, distributions in packages_distributions().items()
        if {canonicalize_name(name) for name in distributions} <= left_out
    ]


def python(code: str, extra: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process in which the packages of other extras cannot be imported."""
    blocked = dict.fromkeys(without(extra))
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules.update({blocked!r}); {code}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ("", "import aps_client, aps_cli.main, aps_core.tasks, aps_core.capabilities"),
        ("library", "import aps_core as aps; aps.load_prior('embedded')"),
        ("service", "import service.main, service.jobs, aps_client; service.main.create_app"),
        ("worker", "import worker.app, worker.tasks, worker.lifecycle, aps_core.engines.engine"),
    ],
)
def test_an_install_line_provides_what_it_promises(extra: str, code: str) -> None:
    assert without(extra)
    done = python(code, extra)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_command_line_names_the_missing_extra() -> None:
    photo = ROOT / "examples/photos/coffee.png"
    for words, extra in (
        (["restore", str(photo), "--operator", "denoise"], "library"),
        (["serve"], "service"),
    ):
        code = f"from aps_cli.main import main; sys.argv = ['aps', *{words}]; main()"
        done = python(code, "")
        assert (done.returncode, done.stdout) == (1, "")
        assert f"pip install '.[{extra}]'" in done.stderr
        assert "Traceback" not in done.stderr
