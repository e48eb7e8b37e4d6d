"""What breaks callers of the last release is found, and told."""

import copy
import json
import re
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest

from scripts.breaking_changes import BASELINES, PACKAGES, breaking_changes, python_changes
from scripts.openapi_changes import http_changes

ROOT = Path(__file__).parents[1]
OPENAPI = json.loads((BASELINES / "openapi.json").read_text())
STUB = (BASELINES / "aps_core.pyi").read_text()


def test_every_breaking_change_is_in_the_changelog_or_accepted():
    newest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    told = set(re.findall(r"`([^`]+)`", newest.partition("### Breaking")[2].partition("\n### ")[0]))
    lines = (BASELINES / "accepted.txt").read_text().splitlines()
    accepted = {line for line in lines if line and not line.startswith("#")}
    found = set(breaking_changes())
    assert accepted <= found, "accepted, but there is no such change"
    subjects = {line: line.partition(": ")[0] for line in found - accepted}
    missing = [
        line
        for line, subject in subjects.items()
        if not {subject, subject.rpartition(".")[2]} & told
    ]
    assert not missing


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (", seed: int = 0", "", "aps_core.restore(seed): parameter was removed"),
        ("def restore(", "def mend(", "aps_core.restore: public object was removed"),
        (
            "seed: int = 0",
            "seed: int",
            "aps_core.restore(seed): parameter is now required",
        ),
        ("    learning_rate: object\n", "", "APSConfig.learning_rate: public object was removed"),
    ],
)
def test_a_breaking_change_of_a_package_is_found(old, new, told):
    assert old in STUB
    changes = list(python_changes("aps_core", STUB, STUB.replace(old, new)))
    assert any(told in line for line in changes), changes


def test_an_addition_breaks_nobody():
    more = STUB.replace(", seed: int = 0", ", seed: int = 0, haste: bool = False")
    assert not list(python_changes("aps_core", STUB, f"{more}def new(): ...\n"))
    for name in PACKAGES:
        stub = (BASELINES / f"{name}.pyi").read_text()
        assert not list(python_changes(name, stub, stub))
    assert not list(http_changes(OPENAPI, OPENAPI))
    wider = copy.deepcopy(OPENAPI)
    wider["paths"]["/v1/new"] = {"get": {"responses": {}}}
    wider["components"]["schemas"]["RestoreSpec"]["properties"]["haste"] = {"type": "boolean"}
    assert not list(http_changes(OPENAPI, wider))


def removed(document, *path):
    del reduce(getitem, path[:-1], document)[path[-1]]


def changed(document, value, *path):
    reduce(getitem, path[:-1], document)[path[-1]] = value


SPEC = ("components", "schemas", "RestoreSpec")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda new: removed(new, "paths", "/v1/jobs", "get"), "GET /v1/jobs: was removed"),
        (lambda new: removed(new, *SPEC, "properties", "seed"), "RestoreSpec.seed: was removed"),
        (
            lambda new: changed(new, ["seed"], *SPEC, "required"),
            "RestoreSpec.seed: is now required",
        ),
        (
            lambda new: changed(new, {"type": "string"}, *SPEC, "properties", "seed"),
            "RestoreSpec.seed: no longer takes integer",
        ),
        (
            lambda new: changed(new, 9, *SPEC, "properties", "seed", "minimum"),
            "RestoreSpec.seed: minimum is now 9",
        ),
        (
            lambda new: removed(new, "components", "schemas", "JobView", "properties", "state"),
            "JobView.state: was removed",
        ),
    ],
)
def test_a_breaking_change_of_the_http_interface_is_found(change, told):
    new = copy.deepcopy(OPENAPI)
    change(new)
    assert told in list(http_changes(OPENAPI, new))
