"""A worker process: start, refusal to start, survival of crashing jobs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from celery import Celery

from aps_core.errors import InvalidSpec
from service.launch.processes import worker_command
from service.settings import RUN_JOB, Settings, queue_name
from tests.stack import Stack, png
from worker.capacity import capacities

ENDLESS = {"steps": 128, "inner_steps": 500}


def child_of(parent: int) -> int | None:
    pids = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(pids[0]) if pids else None


def test_a_worker_without_its_prior_exits_with_a_reason(settings: Settings) -> None:
    absent = settings.model_copy(update={"priors": ["absent"]})
    done = subprocess.run(
        worker_command(absent),
        env=absent.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "There is no prior 'absent'" in done.stdout + done.stderr
    assert done.returncode == os.EX_CONFIG


def test_priors_exceeding_device_memory_are_rejected_in_one_line(settings: Settings) -> None:
    small = settings.model_copy(update={"memory_bytes": 600_000_000})
    done = subprocess.run(
        worker_command(small),
        env=small.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == os.EX_CONFIG
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "cannot start" in line]
    assert re.search(
        r"The priors need about 0\.\d+ GB \(embedded 0\.0346 GB and 0\.\d+ GB a job", line
    ), line
    assert "but the device has 0.6 GB" in line


def test_capacity_is_the_memory_left_by_all_weights(settings: Settings) -> None:
    device = settings.model_copy(update={"memory_bytes": 10**9})
    alone = capacities(device.model_copy(update={"priors": ["embedded"]}))["embedded"].job_bytes
    assert 10**9 - 500_000_000 - 40_000_000 < alone < 500_000_000
    together = capacities(device.model_copy(update={"priors": ["embedded", "embedded_text"]}))
    assert (
        together["embedded"].job_bytes == together["embedded_text"].job_bytes < alone - 20_000_000
    )
    with pytest.raises(InvalidSpec, match="each only once"):
        capacities(settings.model_copy(update={"priors": ["embedded", "embedded"]}))
    assert capacities(settings)["embedded"].job_bytes > 10**8, "of this machine"


def test_a_job_that_kills_its_worker_fails_after_three_attempts(
    stack: Stack,
) -> None:
    job = stack.submit(png(128, 128), sampler=ENDLESS)
    parent = stack.workers[-1].pid
    deadline = time.monotonic() + 120
    killed = 0
    while (now := stack.job(job["id"]))["state"] in ("queued", "running"):
        assert time.monotonic() < deadline, now
        child = child_of(parent)
        if now["state"] == "running" and now["attempt"] == killed + 1 and child:
            killed += 1
            os.kill(child, signal.SIGKILL)
        time.sleep(0.05)
    assert (now["state"], now["error"]["code"], now["attempt"], killed) == (
        "failed",
        "worker_lost",
        3,
        3,
    )
    after = stack.submit(sampler={"steps": 2, "inner_steps": 1})
    assert stack.wait(after["id"])["state"] == "succeeded"


def test_a_message_delivered_twice_runs_the_job_once(stack: Stack) -> None:
    job = stack.submit(sampler={"steps": 3, "inner_steps": 2})
    with broker_client(stack.settings) as app:
        for _ in range(3):
            app.send_task(RUN_JOB, args=[job["id"]], queue=queue_name("embedded"))
        app.send_task(RUN_JOB, args=["no such job"], queue=queue_name("embedded"))
    done = stack.wait(job["id"])
    last = stack.submit(sampler={"steps": 1, "inner_steps": 1})
    stack.wait(last["id"])
    assert (done["state"], done["attempt"]) == ("succeeded", 1)
    assert stack.job(job["id"])["version"] == done["version"], "nothing happened after the end"


def test_pickled_messages_are_refused(stack: Stack, tmp_path: Path) -> None:
    with broker_client(stack.settings) as app:
        app.send_task(
            RUN_JOB,
            args=[Trap(str(tmp_path / "sprung"))],
            queue=queue_name("embedded"),
            serializer="pickle",
        )
    after = stack.submit(sampler={"steps": 1, "inner_steps": 1})
    assert stack.wait(after["id"])["state"] == "succeeded"
    assert not (tmp_path / "sprung").exists()


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.path,)


def broker_client(settings: Settings) -> Celery:
    app = Celery("test", broker=settings.broker_url, set_as_current=False)
    app.conf.update(broker_transport_options=settings.broker_transport_options)
    return app
