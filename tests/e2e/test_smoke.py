"""The smoke command distinguishes a working service from a broken one."""

from __future__ import annotations

import subprocess
from pathlib import Path

from service.launch.processes import free_port
from tests.stack import Stack

ROOT = Path(__file__).parents[2]


def test_the_smoke_command_restores_a_picture(stack: Stack) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "smoke", stack.url],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded; its result has" in done.stdout


def test_the_smoke_command_fails_without_a_service() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = subprocess.run(
        [ROOT / "scripts" / "smoke", url],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "SMOKE_SECONDS": "1"},
    )
    assert done.returncode != 0
    assert "not ready" in done.stderr
