"""A service for fault tests: server and workers can be killed; the test itself acts as the API."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from redis import Redis
from redis.exceptions import RedisError

from aps_contract import Event, JobState
from aps_core.tasks import validate_spec
from service.dispatch.notifier import JobNotifier
from service.dispatch.sweeper import Sweeper
from service.jobs import ArtifactStore, Job, JobStore, WorkerRegistry, new_job_id, open_store
from service.launch.embedded_server import server_binary, server_command
from service.launch.processes import worker_command
from service.launch.supervisor import process
from service.settings import Settings
from tests.stack import TIMEOUT, png

ROOT = Path(__file__).parents[2]
STEPS = 10
LEASE = 3.0

Victim = Literal["child", "parent", "group"]


class Server:
    """A Redis-compatible server with an append-only file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self.start()

    def start(self) -> None:
        """Starts the server with the data in its files."""
        self.process = subprocess.Popen(
            server_command(server_binary(Settings()), self.folder, self.socket)
        )
        with Redis.from_url(self.url) as client:
            deadline = time.monotonic() + 20
            while True:
                try:
                    client.ping()
                    return
                except RedisError:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)

    def kill(self) -> None:
        """Kills the server with SIGKILL, as in a power failure."""
        self.process.kill()
        self.process.wait()


@dataclass
class Cluster:
    """Server and workers as processes; jobs are submitted and swept in this process."""

    settings: Settings
    server: Server
    log: Path
    exits: ExitStack
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    load_seconds: float = 0.0
    """Seconds the last worker took to start."""

    def __post_init__(self) -> None:
        self.store: JobStore
        self.registry: WorkerRegistry
        self.store, self.registry = open_store(self.settings, retries=20)
        self.artifacts = ArtifactStore(self.settings.artifacts)
        self.notifier = JobNotifier(self.settings)
        self.sweeper = Sweeper(self.settings, self.store, self.artifacts, self.notifier)
        self.sweeper.start()
        self.exits.callback(self.notifier.close)
        self.exits.callback(self.sweeper.stop)

    # -- workers ----------------------------------------------------------------------------------

    @property
    def sabotage(self) -> Path:
        """File that injects a fault into the next job; see ``sabotage/sitecustomize.py``."""
        return self.settings.data_dir / "sabotage"

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Starts a worker and waits until it is registered."""
        started, before = time.monotonic(), {worker.name for worker in self.registry.live()}
        command, path = (
            worker_command(self.settings),
            os.pathsep.join([str(Path(__file__).with_name("sabotage")), str(ROOT)]),
        )
        worker = self.exits.enter_context(
            process(
                "worker",
                command,
                self.settings,
                self.log,
                PYTHONPATH=path,
                SABOTAGE=str(self.sabotage),
            )
        )
        self.workers.append(worker)
        while not {worker.name for worker in self.registry.live()} - before:
            assert worker.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() - started < TIMEOUT, self.log.read_text()[-3000:]
            time.sleep(0.05)
        self.load_seconds = time.monotonic() - started
        return worker

    def ensure_worker(self) -> None:
        """Makes sure that exactly one worker runs."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) > 1:
            self.stop(self.workers.pop())
        if not self.workers:
            self.start_worker()

    def stop(self, worker: subprocess.Popen[bytes]) -> None:
        """Stops all workers immediately."""
        worker.kill()
        worker.wait()

    def kill(self, victim: Victim) -> None:
        """Sends SIGKILL to the computing child, its parent or both; replaces a dead parent."""
        worker = self.workers[-1]
        if victim == "child":
            os.kill(self.child(), signal.SIGKILL)
            return
        if victim == "group":
            os.killpg(worker.pid, signal.SIGKILL)
        self.stop(worker)
        self.start_worker()

    def child(self) -> int:
        """Waits for the newest worker's child and returns its process id."""
        parent, deadline = self.workers[-1].pid, time.monotonic() + 30
        while not (pids := Path(f"/proc/{parent}/task/{parent}/children").read_text().split()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return int(pids[0])

    # -- jobs -------------------------------------------------------------------------------------

    def submit(
        self,
        seed: int = 0,
        steps: int = STEPS,
        inner: int = 2,
        side: int = 64,
        *,
        notify: bool = True,
        **changes: object,
    ) -> Job:
        """Submits a small restoration as the API does."""
        job_id = new_job_id()
        sampler = {"steps": steps, "inner_steps": inner}
        spec = validate_spec(
            {
                "type": "restore",
                "operator": {"type": "denoise"},
                "sigma": 0.1,
                "seed": seed,
                "sampler": sampler,
            }
        ).resolved()
        image = self.artifacts.put(job_id, "measurement.png", png(side, side), "image/png")
        fields = {
            "task": "restore",
            "prior": "embedded",
            "spec": spec.model_dump(mode="json"),
            "inputs": {"image": image},
            **changes,
        }
        job = Job.model_validate(
            {"id": job_id, "image_size": (side, side), "output_size": (side, side), **fields}
        )
        self.store.submit(job)
        if notify:
            self.notifier.notify(job)
        return job

    def job(self, job: Job) -> Job:
        """Reads the current record."""
        found = self.store.get(job.id)
        assert found is not None
        return found

    def wait(self, job: Job, seconds: float = TIMEOUT) -> Job:
        """Waits until the job has ended and returns its record."""
        deadline = time.monotonic() + seconds
        while not (now := self.job(job)).state.terminal:
            assert time.monotonic() < deadline, (now, self.log.read_text()[-3000:])
            time.sleep(0.02)
        return now

    def wait_for_step(self, job: Job, step: int, seconds: float = TIMEOUT) -> float:
        """Returns as soon as this step or a later one has finished."""
        deadline = time.monotonic() + seconds
        while (now := self.job(job)).progress is None or now.progress.step < step:
            assert time.monotonic() < deadline, (now, self.log.read_text()[-3000:])
            assert not now.state.terminal, now
            time.sleep(0.005)
        return time.monotonic()

    def result(self, job: Job) -> str:
        """Hash of the result picture."""
        done = self.wait(job)
        artifact = done.artifact("result.png")
        assert artifact is not None, (done, self.log.read_text()[-3000:])
        assert done.state is JobState.SUCCEEDED
        return artifact.file

    def damage_newest_checkpoint(self, job: Job) -> int:
        """Flips a bit of the newest checkpoint; returns its step."""
        key = f"{self.settings.key_prefix}job:{job.id}:checkpoint"
        slots: Any = self.store.redis.hgetall(key)
        newest = max(slots, key=lambda slot: slots[slot][:4][::-1])
        damaged = bytearray(slots[newest])
        damaged[-1] ^= 1
        self.store.redis.hset(key, newest, bytes(damaged))
        return int.from_bytes(slots[newest][:4], "little")

    def history(self, job: Job) -> list[Event]:
        """Returns all events after checking the invariants of a job's history."""
        events = self.store.events(job.id, count=2000)
        versions = [event.data["version"] for event in events]
        assert versions == sorted(set(versions)), "versions only grow"
        assert [event.type for event in events].count("done") <= 1, "a job ends once"
        steps = [event.data["step"] for event in events if event.type == "progress"]
        assert steps == list(range(1, len(steps) + 1)), (
            "no step is saved twice or left out: only the one under way is ever lost"
        )
        return events
