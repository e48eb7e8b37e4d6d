"""One outside file adds an operator, a prior, a sampler, a loss, a style measure or a task to
everything: library, command line, capabilities and REST.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.apis import started_stack
from tests.stack import Stack, png

ROOT = Path(__file__).parents[1]
FAMILIES = {
    "operator": "operators",
    "prior": "priors",
    "sampler": "samplers",
    "loss": "losses",
    "style_measure": "style_measures",
    "task": "tasks",
}
"""Name of the entry-point group and of the list in the capabilities by family."""
ALL = {
    "prior": "outside_prior",
    "operator": {"type": "outside_operator", "dimming": 0.7},
    "sampler": {"type": "outside_sampler", "daring": 0.2},
    "loss": {"type": "outside_loss", "elbow": 0.3},
}
"""A restoration by outside files alone."""
STYLE = {"type": "outside_style_measure", "vividness": 2.0}


def installed(folder: Path, families: Iterable[str]) -> dict[str, str]:
    """An environment in which one file of each family is installed as a package of its own."""
    for family in families:
        name = f"outside_{family}"
        (folder / f"{name}.py").write_text((ROOT / f"tests/extending/{name}.py").read_text())
        about = folder / f"{name}-1.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (about / "entry_points.txt").write_text(f"[aps.{FAMILIES[family]}]\n{name} = {name}\n")
    path = os.pathsep.join([str(folder), str(ROOT), str(ROOT / "examples")])
    return {"PYTHONPATH": path}


def python(code: str, environment: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


CAPABILITIES = (
    "import json; from aps_core.capabilities import describe; print(json.dumps(describe()))"
)
HELP = "import sys; from aps_cli.main import main; sys.argv = ['aps', {!r}, '--help']; main()"


@pytest.mark.parametrize("family", FAMILIES)
def test_capabilities_and_command_line_know_it(tmp_path: Path, family: str) -> None:
    environment = installed(tmp_path, (family,))
    known = json.loads(python(CAPABILITIES, environment, tmp_path))
    (mine,) = (
        each
        for each in known[FAMILIES[family]]
        if f"outside_{family}" in (each.get("type"), each.get("name"))
    )
    assert len(mine["summary"].split()) > 3
    command = {"task": "--help", "style_measure": "stylize"}.get(family, "restore")
    shown = python(HELP.format(command), environment, tmp_path)
    assert family == "prior" or f"outside_{family}" in shown
    own = {"operator": "--dimming", "sampler": "--daring", "loss": "--elbow"}
    own["style_measure"] = "--vividness"
    assert own.get(family, "") in shown


TASKS = """
from pathlib import Path
from aps_core import load_prior
from aps_core.imaging.images import open_image
from aps_core.tasks import Inputs, run, validate_spec

photo = open_image(Path("photo.png").read_bytes())
engine = load_prior("outside_prior", "cpu")
spec = {"type": "stylize", "prior": "outside_prior", "prompt": "red"}
spec["measure"] = {"type": "outside_style_measure"}
red = run(validate_spec(spec).resolved(), Inputs(style=photo), engine)
print(red.pictures_BCHW.shape[-1], len(red.misfit_curve))
spec = {"type": "outside_task", "prior": "outside_prior", "times": 2}
trip = run(validate_spec(spec).resolved(), Inputs(image=photo), engine)
print(trip.pictures_BCHW.shape[-1], "trip")
"""
"""Stylizing with the outside measure, and the outside task, with the library."""


def test_the_library_and_the_command_line_compute_with_all_of_them(tmp_path: Path) -> None:
    environment = installed(tmp_path, FAMILIES)
    (tmp_path / "photo.png").write_bytes(png(32, 24))
    code = (
        "import json, sys, aps_core as aps; given = json.loads(sys.argv[1]); name ="
        " given.pop('prior'); result = aps.restore(aps.Measurement('photo.png',"
        " given.pop('operator'), sigma=0.1), name, **given); print(result.image.size,"
        " result.sampler.type, result.loss.type)"
    )
    told = python(
        f"import sys; sys.argv[1:] = [{json.dumps(ALL)!r}]; {code}", environment, tmp_path
    )
    assert told.strip() == "(32, 24) outside_sampler outside_loss"
    assert python(TASKS, environment, tmp_path).split() == ["64", "2", "32", "trip"]
    words = (
        "restore photo.png --prior outside_prior --operator outside_operator --dimming 0.7"
        " --sampler outside_sampler --daring 0.2 --loss outside_loss --sigma 0.1 -o out.png --json"
        " --device cpu"
    )
    command = "import sys; from aps_cli.main import main; sys.argv = ['aps', *{!r}.split()]; main()"
    sidecar = json.loads(python(command.format(words), environment, tmp_path))
    assert sidecar["spec"]["sampler"]["daring"] == 0.2
    assert sidecar["spec"]["loss"] == {"type": "outside_loss", "elbow": 0.5}
    words = (
        "stylize photo.png red --prior outside_prior --measure outside_style_measure --vividness 3"
        " -o red.png --json --device cpu"
    )
    sidecar = json.loads(python(command.format(words), environment, tmp_path))
    assert sidecar["spec"]["measure"] == {**STYLE, "vividness": 3.0}
    assert len(sidecar["misfit_curve"]) == sidecar["spec"]["sampler"]["steps"] == 2
    words = "outside_task photo.png --prior outside_prior --times 2 -o trip.png --device cpu"
    assert python(command.format(words), environment, tmp_path).strip() == "trip.png"


@pytest.fixture(scope="module")
def outside_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A running service in whose environment the outside files are installed."""
    folder = tmp_path_factory.mktemp("outside")
    environment = installed(folder, FAMILIES)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with started_stack(folder, priors=["outside_prior"]) as running:
            yield running


def test_the_service_computes_with_all_of_them(outside_stack: Stack) -> None:
    stack = outside_stack
    job = stack.wait(stack.submit(png(32, 24), **ALL)["id"])
    assert job["state"] == "succeeded", job
    assert job["spec"]["sampler"]["daring"] == 0.2
    answer = stack.http.post(
        "/v1/stylize",
        files={"style": png(32, 24)},
        data={"spec": json.dumps({"prior": "outside_prior", "prompt": "red", "measure": STYLE})},
    )
    assert answer.status_code == 202, answer.text
    job = stack.wait(answer.json()["id"])
    assert job["state"] == "succeeded", job
    assert job["spec"]["measure"] == STYLE
    answer = stack.http.post(
        "/v1/outside_task",
        files={"image": png(32, 24)},
        data={"spec": json.dumps({"prior": "outside_prior", "times": 3})},
    )
    assert answer.status_code == 202, answer.text
    job = stack.wait(answer.json()["id"])
    assert job["state"] == "succeeded", job
    assert stack.artifact(job["id"], "result.png").startswith(b"\x89PNG")
    known = stack.http.get("/v1/capabilities").json()
    for family, group in FAMILIES.items():
        assert f"outside_{family}" in {each.get("type", each.get("name")) for each in known[group]}
