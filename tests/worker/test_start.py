"""How a worker starts where something is wrong: what it logs, how it ends, what it goes on
without.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path

from service.launch.processes import free_port, worker_command
from service.launch.supervisor import process
from service.settings import Settings
from tests.stack import TIMEOUT, Stack, png

ROOT = Path(__file__).parents[2]
ALTERED = os.pathsep.join([str(Path(__file__).with_name("altered")), str(ROOT)])


def test_a_worker_that_cannot_load_for_an_unknown_reason_ends_and_says_why(
    settings: Settings,
) -> None:
    done = subprocess.run(
        worker_command(settings),
        env={**settings.environment(), "PYTHONPATH": ALTERED, "ALTERED": "broken"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == os.EX_SOFTWARE, output
    (line,) = [line for line in output.splitlines() if "cannot start" in line]
    assert "TypeError: 'NoneType' object is not callable" in line
    assert "Traceback" in output


def test_a_worker_whose_port_is_taken_ends_and_says_why(settings: Settings) -> None:
    import socket

    with socket.create_server(("", 0)) as taken:
        busy = settings.model_copy(update={"metrics_port": taken.getsockname()[1]})
        done = subprocess.run(
            worker_command(busy),
            env=busy.environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    assert done.returncode == os.EX_SOFTWARE
    assert "Address already in use" in done.stdout + done.stderr


def test_cuda_s_plan_without_a_working_compiler_falls_back_and_says_so(
    stack: Stack, tmp_path: Path
) -> None:
    """The plan of a GPU, forced on this CPU in a worker that finds only compilers that fail."""
    for name in ("cc", "gcc", "g++", "clang"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'Python.h: No such file or directory' >&2\n")
        (tmp_path / name).chmod(0o755)
    stack.kill_workers()
    deadline = time.monotonic() + TIMEOUT
    while stack.live_workers():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    settings = stack.settings.model_copy(update={"metrics_port": free_port()})
    log = tmp_path / "log"
    surroundings = {
        "PYTHONPATH": ALTERED,
        "ALTERED": "cuda",
        "PATH": str(tmp_path),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "kernels"),
    }
    with process("worker", worker_command(settings), settings, log, **surroundings) as worker:
        while not stack.live_workers():
            assert worker.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.25)
        job = stack.submit(png(128, 128), sampler={"steps": 2, "inner_steps": 2})
        done = stack.wait(job["id"])
        metrics_url = f"http://127.0.0.1:{settings.metrics_port}/metrics"
        with urllib.request.urlopen(metrics_url, timeout=10) as answer:
            metrics = answer.read().decode()
    assert done["state"] == "succeeded", done
    warnings = [line for line in log.read_text().splitlines() if "cannot be compiled" in line]
    assert len(warnings) == 1, log.read_text()  # of the one tokenizer with normalisations
    (note,) = json.loads(stack.artifact(job["id"], "result.json"))["notes"]
    assert note.startswith("The normalisations run uncompiled: ")
    assert 'aps_model_fallback{prior="embedded"} 1.0' in metrics
