"""The first minutes of four kinds of users, walked in a browser and a shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack import Stack

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_nobody_meets_an_error_and_no_path_is_long(stack: Stack) -> None:
    done = subprocess.run(  # in a process of its own, as the studio's tests drive a browser here
        [sys.executable, "-m", "benchmarks.newcomers", stack.url, "--short"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in done.stdout.splitlines()[2:]
    ]
    effort = {who: (int(clicks), int(lines)) for who, clicks, lines, *_ in rows}
    assert {row[0]: row[-1] for row in rows if row[-1] != "none"} == {}
    assert effort["photographer"][0] <= 5
    assert effort["product engineer"][1] <= 4
    assert effort["researcher"][1] <= 5
    assert set(effort) == {
        "photographer",
        "product engineer",
        "researcher",
        "platform engineer",
    }
