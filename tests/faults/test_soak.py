"""A short soak test: with random kills, no job is lost or finished twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
JOBS = 25


def test_a_short_soak_loses_no_job(tmp_path: Path) -> None:
    out = tmp_path / "soak.json"
    options = [
        "--jobs",
        str(JOBS),
        "--seconds",
        "8",
        "--pause",
        "2",
        "--lease",
        "2",
        "--workers",
        "2",
        "--seed",
        "1",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", *options, "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(out.read_text())
    assert (report["lost"], report["finished_twice"], report["states"]) == (
        0,
        0,
        {"succeeded": JOBS},
    )
    assert sum(report["disturbances"].values()) >= 2
