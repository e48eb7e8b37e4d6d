"""A worker's lifecycle: the child loads and measures the priors, registers, and drains.

The parent never imports torch: a CUDA context does not survive a fork, and the parent computes
nothing. A drain (SIGTERM to the parent, Celery's warm shutdown) sets one flag in memory both
processes share; the running job sees it at its next step and goes back to the queue.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

from celery.signals import (
    setup_logging,
    worker_init,
    worker_process_init,
    worker_process_shutdown,
    worker_shutdown,
    worker_shutting_down,
)
from redis.exceptions import RedisError

from aps_core.checkpoints import checkpoint_cache
from aps_core.errors import APSError
from service.jobs import ArtifactStore, WorkerInfo, open_store
from service.telemetry import build, logs, tracing
from worker import device, exporter, telemetry
from worker.app import settings
from worker.capacity import capacities

if TYPE_CHECKING:
    from aps_core.engines.engine import Engine
    from aps_core.tasks.estimate import Capacity

log = logging.getLogger(__name__)

REGISTER_SECONDS = 5

CPU_NICENESS = 5
"""Niceness of a CPU worker, so that the API and the job store get the CPU first on a shared
machine: a request takes milliseconds, a job seconds.
"""

_parent = os.getpid()
"""Process id of the parent: this module is imported before the fork."""

_parent_id = secrets.token_hex(4)
"""Random id of the parent, created before the fork and shared by all of its children."""

draining = multiprocessing.RawValue(ctypes.c_bool, False)
"""Flag in memory shared by parent and child, created before the fork. A raw byte without a lock, so
that a signal handler may set it.
"""

exit_status = multiprocessing.RawValue(ctypes.c_int, os.EX_OK)
"""Exit status of the parent when its child cannot compute. Celery alone would exit with 0, as after
a drain.
"""


class Worker:
    """State of the child process: engines, store, artifacts, registration."""

    def __init__(self) -> None:
        # a respawned child has the same name, so it may take over its predecessor's job at once;
        # the random id keeps names unique: containers share process ids and may share a host name
        self.name = f"{socket.gethostname()}-{os.getppid()}-{_parent_id}"
        self.store, self.registry = open_store(settings, retries=10)
        self.artifacts = ArtifactStore(settings.artifacts)
        self.engines: dict[str, Engine] = {}
        self.entries: list[WorkerInfo] = []
        self.stopping = threading.Event()
        self.problem: str | None = "The priors are being loaded."
        """Why this worker takes no jobs; None when it does."""
        self.last_message_at = time.monotonic()
        """Time of the last message or of the last job's end, by ``time.monotonic``."""
        self.busy = False

    def load(self, prior: str, capacity: Capacity) -> None:
        """Loads a prior and measures its speed; the worker registers only after this canary.

        Raises:
            APSError: the prior is unknown, or its weights are missing or damaged.
        """
        from aps_core.runtime.process import be_reproducible

        be_reproducible(settings.threads)
        from aps_core.engines.engine import Engine

        started = time.monotonic()
        telemetry.enter_state(prior, "loading")
        engine = Engine.load(prior, settings.device)
        rate = engine.seconds_per_token()
        telemetry.MODEL_FALLBACK.labels(prior).set(bool(engine.fallbacks()))
        self.engines[prior] = engine
        self.entries.append(
            WorkerInfo(
                name=f"{self.name}-{prior}",
                prior=prior,
                device=settings.device,
                seconds_per_token=rate,
                max_pixels=settings.area_limit,
                job_bytes=capacity.job_bytes,
                token_bytes=capacity.token_bytes,
            )
        )
        telemetry.MODEL_LOAD.labels(prior).set(time.monotonic() - started)
        telemetry.enter_state(prior, "ready")
        log.info("Prior '%s' on %s: %.2g s a token and inner step", prior, settings.device, rate)

    def stay_registered(self) -> None:
        """Renews the registration until the process stops or drains; suspends it while the device
        is faulty.
        """
        # no message could arrive while the priors were loading, which may take minutes
        self.last_message_at = time.monotonic()
        while not draining.value:
            self.problem = device.fault(settings.device)
            telemetry.DEVICE_HEALTHY.set(self.problem is None)
            try:
                if self.problem:
                    log.error("This worker accepts no jobs: %s", self.problem)
                    self._leave()
                else:
                    self._renew()
                    self._exit_if_stalled()
            except RedisError as error:
                log.warning("Could not renew the registration: %s", error)
            if self.stopping.wait(REGISTER_SECONDS):
                return
        self.problem = "The worker is draining."
        for entry in self.entries:
            telemetry.enter_state(entry.prior, "draining")

    def _renew(self) -> None:
        present = checkpoint_cache.present()  # weights may be fetched while a worker runs
        for entry in self.entries:
            self.registry.renew(entry.model_copy(update={"checkpoints": present}))

    def _leave(self) -> None:
        for entry in self.entries:
            self.registry.remove(entry.name)

    def _exit_if_stalled(self) -> None:
        """Kills a parent whose broker connection has stalled; its supervisor starts a new one."""
        idle_seconds = time.monotonic() - self.last_message_at
        if (
            self.busy
            or idle_seconds < settings.stall_seconds
            or not any(self.store.depth(entry.prior) for entry in self.entries)
        ):
            return
        log.critical(
            "Jobs are queued, but no message has arrived for %.0f s; this worker exits",
            idle_seconds,
        )
        # SIGKILL: a warm shutdown needs the event loop that hangs
        os.kill(os.getppid(), signal.SIGKILL)

    def unregister(self) -> None:
        """Stops renewing the registration and removes it."""
        self.stopping.set()
        self._leave()


_worker: Worker | None = None


def this_worker() -> Worker:
    """The child's :class:`Worker`.

    Raises:
        RuntimeError: called in the parent.
    """
    if _worker is None:
        raise RuntimeError("Priors are loaded in the pool's child process only.")
    return _worker


@setup_logging.connect  # type: ignore[untyped-decorator]
def configure_logging(**_: Any) -> None:
    """Runs in the parent, in place of Celery's own logging set-up; the child inherits it."""
    logs.configure(settings.log_level, settings.log_format)


@worker_init.connect  # type: ignore[untyped-decorator]
def refuse_what_does_not_fit(**_: Any) -> None:
    """Runs in the parent before the fork: exits with EX_CONFIG if the priors do not fit."""
    try:
        capacities(settings)
    except APSError as error:
        log.critical("The worker cannot start: %s", error)
        sys.exit(os.EX_CONFIG)
    except Exception as error:
        log.critical("The worker cannot start: %s", _named(error), exc_info=error)
        sys.exit(os.EX_SOFTWARE)


@worker_process_init.connect  # type: ignore[untyped-decorator]
def start(**_: Any) -> None:
    """Runs in a new child: loads every prior and registers."""
    global _worker
    if os.getppid() != _parent:
        os._exit(os.EX_UNAVAILABLE)  # the parent exited before Celery set the death signal
    if exit_status.value != os.EX_OK:
        os._exit(exit_status.value)  # an earlier child has already terminated the parent
    _close_inherited_sockets()
    try:
        _worker = _loaded()
    except APSError as error:
        end_worker(os.EX_CONFIG, f"The worker cannot start: {error}")
    except Exception as error:  # noqa: BLE001 - Celery would log it and run jobs without a prior
        end_worker(os.EX_SOFTWARE, f"The worker cannot start: {_named(error)}", error)
    threading.Thread(target=_register, args=(_worker,), name="registration", daemon=True).start()


def _close_inherited_sockets() -> None:
    """Closes this child's copies of the parent's connections, before it opens its own.

    The kernel keeps watching a connection for the parent's event loop as long as any process has it
    open. If the server closed it, the loop would be woken without end and use a whole core.
    """
    for each in gc.get_objects():
        if isinstance(each, socket.socket):
            each.close()


def _loaded() -> Worker:
    """Creates the worker and loads its priors; the metrics port opens before they load."""
    import torch

    tracing.configure("worker")
    if settings.device == "cpu":
        os.nice(CPU_NICENESS)
    worker = Worker()
    if settings.metrics_port:
        exporter.serve(settings.metrics_port, lambda: worker.problem)
    for prior, capacity in capacities(settings).items():
        worker.load(prior, capacity)
    build.describe(torch.__version__)
    if settings.device == "cuda":
        telemetry.watch_gpu_memory()
    return worker


def _register(worker: Worker) -> None:
    """Keeps the worker registered; ends it on an error, as an unregistered worker gets no jobs."""
    try:
        worker.stay_registered()
    except Exception as error:  # noqa: BLE001 - a thread's exception would end the thread only
        end_worker(os.EX_SOFTWARE, f"The worker cannot stay registered: {_named(error)}", error)


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def end_worker(status: int, reason: str, error: Exception | None = None) -> NoReturn:
    """Terminates the parent with ``status``, and exits this child immediately. Celery swallows
    exceptions raised during a child's start and then sends it jobs, so none may leave this module.
    """
    log.critical(reason, exc_info=error)
    logging.shutdown()
    exit_status.value = status
    os.kill(os.getppid(), signal.SIGTERM)
    os._exit(status)


@worker_process_shutdown.connect  # type: ignore[untyped-decorator]
def stop(**_: Any) -> None:
    """Runs in a child that exits normally: unregisters and flushes traces."""
    if _worker is not None:
        _worker.unregister()
    tracing.stop()


@worker_shutdown.connect  # type: ignore[untyped-decorator]
def report_failure(sender: Any = None, **_: Any) -> None:
    """Runs in the parent at shutdown: reports a child's failure as the worker's exit status."""
    if exit_status.value != os.EX_OK:
        sender.exitcode = exit_status.value


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def drain(**_: Any) -> None:
    """Runs in the parent's signal handler: tells the child to return its job to the queue."""
    draining.value = True
