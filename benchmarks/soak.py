"""Soak test: runs many short jobs while processes are killed or frozen at random.

    python -m benchmarks.soak --jobs 1000 --seconds 600 --out benchmarks/results/soak.json

Starts a store, an API (for its sweeper) and workers under supervision; submits jobs at a constant
rate. Every few seconds it kills or freezes a worker's child, a worker's parent, the API or the
store. At the end it checks the history of every job: the job succeeded exactly once, its version
increased monotonically, every step was saved exactly once, and the picture is bit-identical to that
of an undisturbed run. The exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from redis.exceptions import RedisError

from aps_core.tasks import validate_spec
from benchmarks import service_report
from benchmarks.soak_checks import checked
from service.dispatch.notifier import JobNotifier
from service.jobs import ArtifactStore, Job, new_job_id, open_store
from service.launch.embedded_server import server_binary, server_command
from service.launch.processes import api_command, free_port, worker_command
from service.launch.supervisor import Supervisor
from service.settings import Settings

VICTIMS = {"child": 6, "parent": 2, "frozen child": 1, "API": 1, "store": 1}
"""Disturbances and their relative frequencies."""
SEEDS = 4
STEPS = 4


@dataclass
class Soak:
    """The running service, its submitted jobs and the disturbances so far."""

    settings: Settings
    supervisor: Supervisor
    workers: int
    chance: random.Random
    jobs: dict[str, int] = field(default_factory=dict)
    """Seeds of the submitted jobs by id."""
    disturbances: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        # this thread restarts the store, so it must not block on it
        self.store, self.registry = open_store(self.settings, retries=1)
        self.artifacts = ArtifactStore(self.settings.artifacts)
        self.notifier = JobNotifier(self.settings)

    def start(self, url: Path) -> None:
        """Starts all processes and waits for the workers."""
        binary = server_binary(self.settings)
        self.supervisor.start("store", server_command(binary, self.settings.data_dir, url))
        for number in range(self.workers):
            self.supervisor.start(f"worker {number + 1}", worker_command(self.settings))
        self.supervisor.start("API", api_command("127.0.0.1", free_port()))
        self.until(lambda: len(self.registry.live()) == self.workers, 300)

    def until(self, done: Any, seconds: float) -> bool:
        """Supervises the processes until a condition holds or the timeout expires."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.supervisor.tend()
            try:
                if done():
                    return True
            except RedisError:
                pass
            time.sleep(0.05)
        return False

    def submit(self, seed: int) -> None:
        """Submits a small restoration as the API does; retries until the store has accepted it."""
        job_id = new_job_id()
        sampler = {"steps": STEPS, "inner_steps": 1}
        spec = validate_spec(
            {
                "type": "restore",
                "operator": {"type": "denoise"},
                "sigma": 0.1,
                "seed": seed,
                "sampler": sampler,
            }
        ).resolved()
        image = self.artifacts.put(job_id, "measurement.png", picture(), "image/png")
        size = (SIDE, SIDE)
        described = {
            "task": "restore",
            "prior": spec.prior,
            "spec": spec.model_dump(mode="json"),
            "inputs": {"image": image},
        }
        job = Job.model_validate(
            {
                "id": job_id,
                "image_size": size,
                "output_size": size,
                "estimated_seconds": 0.2,
                **described,
            }
        )
        while True:
            try:
                self.store.submit(job)
                break
            except RedisError:
                self.supervisor.tend()
                time.sleep(0.1)
        self.jobs[job_id] = seed
        self.notifier.notify(job)

    def disturb(self) -> None:
        """Kills or freezes a random process."""
        victim = self.chance.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        children = self.supervisor.children
        process = (
            children[victim]
            if victim in children
            else children[f"worker {self.chance.randint(1, self.workers)}"]
        )
        if process.poll() is not None:
            return
        if "child" in victim:
            found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            if not found:
                return
            pid = int(found[0])
            os.kill(pid, signal.SIGSTOP if victim.startswith("frozen") else signal.SIGKILL)
            if victim.startswith("frozen"):
                threading.Timer(self.settings.lease_seconds + 1, thaw, [pid]).start()
        else:
            process.kill()
        self.disturbances[victim] += 1

    def open_jobs(self) -> int:
        """Returns the jobs that have not ended."""
        while True:
            try:
                return sum(self.store.load(self.settings.priors).jobs.values())
            except RedisError:
                self.supervisor.tend()
                time.sleep(0.1)


def thaw(pid: int) -> None:
    """Resumes a frozen process if it still exists."""
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return


SIDE = 32


def picture() -> bytes:
    """Creates a small, smooth picture."""
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    planes = np.stack([127 + 100 * np.sin(x / (3 + c)) * np.cos(y / (4 + c)) for c in range(3)], -1)
    out = io.BytesIO()
    Image.fromarray(planes.astype(np.uint8)).save(out, "PNG")
    return out.getvalue()


def undisturbed(soak: Soak) -> dict[int, str]:
    """Runs one job per seed without disturbances; returns the result files."""
    for seed in range(SEEDS):
        soak.submit(seed)
    if not soak.until(lambda: soak.open_jobs() == 0, 120):
        raise SystemExit("The undisturbed jobs did not end.")
    files = {}
    for job_id, seed in soak.jobs.items():
        job = soak.store.get(job_id)
        result = job.artifact("result.png") if job is not None else None
        if result is None:
            raise SystemExit(f"An undisturbed job ended without a result: {job}")
        files[seed] = result.file
    soak.jobs.clear()
    return files


def disturbed(soak: Soak, jobs: int, seconds: float, pause: float) -> None:
    """Submits at a constant rate and disturbs at random for the given time."""
    started = time.monotonic()
    next_disturbance = started + pause
    while (elapsed := time.monotonic() - started) < seconds or len(soak.jobs) < jobs:
        soak.supervisor.tend()
        if time.monotonic() > next_disturbance:
            soak.disturb()
            next_disturbance = time.monotonic() + soak.chance.uniform(0.5, 1.5) * pause
        if len(soak.jobs) < min(jobs, jobs * elapsed / seconds):
            soak.submit(soak.chance.randrange(SEEDS))
        else:
            time.sleep(0.02)


def drain(soak: Soak, timeout: float = 300) -> None:
    """Waits for the remaining jobs as long as some still end, so that slow machines do not fail."""
    fewest, since = soak.open_jobs(), time.monotonic()
    while fewest and time.monotonic() - since < timeout:
        soak.until(lambda: soak.open_jobs() == 0, 5)
        if (now := soak.open_jobs()) < fewest:
            fewest, since = now, time.monotonic()


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    origin = service_report.origin("benchmarks.soak")
    with tempfile.TemporaryDirectory(prefix="aps-soak-") as name, ExitStack() as exits:
        folder = Path(name)
        settings = Settings(
            redis_url=f"unix://{folder / 's.sock'}",
            data_dir=folder,
            artifacts_dir=folder / "artifacts",
            priors=["embedded"],
            threads=1,
            lease_seconds=arguments.lease,
            heartbeat_seconds=arguments.lease / 5,
            sweep_seconds=1,
            republish_seconds=5,
        )
        supervisor = Supervisor(settings, folder / "service.log", healthy_seconds=2)
        exits.callback(supervisor.stop)
        soak = Soak(settings, supervisor, arguments.workers, random.Random(arguments.seed))
        exits.callback(soak.notifier.close)
        soak.start(folder / "s.sock")
        expected = undisturbed(soak)
        started = time.monotonic()
        disturbed(soak, arguments.jobs, arguments.seconds, arguments.pause)
        drain(soak)
        took = time.monotonic() - started
        found = checked(soak.store, soak.jobs, expected, STEPS)
        if found["faults"]:
            print(tail((folder / "service.log").read_text()), file=sys.stderr)
    return {
        **origin,
        "jobs": arguments.jobs,
        "workers": arguments.workers,
        "lease_seconds": arguments.lease,
        "seconds": round(took, 1),
        "disturbances": dict(soak.disturbances),
        **found,
    }


def tail(log: str) -> str:
    """The end of a log, from its first traceback if it has one."""
    start = log.find("Traceback")
    return log[-5000:] if start < 0 else log[max(0, start - 500) :][:20_000]


def main() -> None:
    parser = service_report.parser(__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600, help="over which they are submitted")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--pause", type=float, default=12, help="mean seconds between two disturbances"
    )
    parser.add_argument("--lease", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    report = run(arguments)
    service_report.write(report, arguments.out)
    sys.exit(1 if report["faults"] else 0)


if __name__ == "__main__":
    main()
