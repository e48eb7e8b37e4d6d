"""One attempt at one job: runs the task, reports its progress and stores its result."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal

from redis.exceptions import RedisError

from aps_contract import JobError, JobState, Phase
from aps_contract import Progress as JobProgress
from aps_core.errors import APSError, InsufficientMemory, SamplingCancelled
from aps_core.imaging import images
from aps_core.tasks import Inputs, Progress, Result, run, validate_spec
from aps_core.tasks.progress import small_preview
from aps_core.types import InnerInfo
from service.jobs import (
    DEADLINE_EXCEEDED,
    Artifact,
    Claim,
    Control,
    Job,
    StorageUnavailable,
    job_error,
    time_limit,
)
from service.jobs.connection import STORE_AWAY
from service.settings import RUN_JOB, queue_name
from service.telemetry import tracing
from worker import telemetry
from worker.app import app, settings
from worker.lifecycle import Worker, draining
from worker.pace import Pace
from worker.retry import retried

log = logging.getLogger(__name__)

POISONED_DEVICE = 70
"""Exit status of a child process whose CUDA context is lost; the parent starts a new child."""

Stop = Literal["cancel", "deadline", "lost", "drain", "time limit"]

TIME_LIMIT = time_limit(settings.max_job_seconds)
INTERNAL = JobError(
    code="internal_error",
    title="Internal error",
    detail="An unexpected error occurred. It has been logged with the job's id.",
)


class JobRun:
    """One attempt at one job, from its claim to its end."""

    def __init__(self, worker: Worker, claim: Claim, job: Job, span: tracing.Span) -> None:
        self.worker = worker
        self.claim = claim
        self.job = job
        self.span = span
        self.started = time.monotonic()
        self.stop: Stop | None = None
        self.preview: Artifact | None = None
        self.steps = 0
        self._over = threading.Event()
        self.pace = Pace(job.estimated_seconds or 0.0)

    def run(self) -> None:
        """Runs the attempt and records its outcome."""
        telemetry.observe_claim(job := self.job)
        if job.attempt == 1 and job.created_at is not None and job.started_at is not None:
            tracing.record("queue", job.traceparent, job.created_at, job.started_at)
        beat = threading.Thread(target=self._keep_alive, name="heartbeat", daemon=True)
        beat.start()
        outcome = "store_away"  # until the store has heard of it
        try:
            outcome = self._attempt()
        except APSError as error:
            self.worker.store.fail(self.claim, job_error(error))
            outcome = "failed"
            if isinstance(error, InsufficientMemory):
                telemetry.OUT_OF_MEMORY.labels(self.job.prior, "failed").inc()
        except STORE_AWAY:
            raise  # the lease expires, and another attempt continues
        except Exception as error:
            self._exit_if_poisoned(error)
            self.worker.store.fail(self.claim, INTERNAL)
            outcome = "failed"
            raise  # for Celery to log
        finally:
            self._over.set()
            beat.join()
            self._count(outcome)

    def _count(self, outcome: str) -> None:
        """Records the outcome in the metrics and in the trace."""
        self.span.note(outcome=outcome, steps=self.steps)
        telemetry.JOB_TIME.labels(self.job.prior, outcome).observe(time.monotonic() - self.started)
        if outcome == "lost":
            telemetry.LEASES_LOST.inc()
        elif outcome in tuple(JobState) and (ended := self.worker.store.get(self.job.id)):
            telemetry.observe_end(ended)

    def _attempt(self) -> str:
        store, job, spec = self.worker.store, self.job, validate_spec(self.job.spec)
        read = partial(self.worker.artifacts.get, job.id)
        pictures = {
            name: images.open_stored(retried(partial(read, blob.file), settings.storage_seconds))
            for name, blob in job.inputs.items()
        }
        checkpoint = store.load_checkpoint(job.id)
        store.enter(self.claim, Phase.SAMPLING)
        try:
            result = run(
                spec,
                Inputs(**pictures),
                self.worker.engines[job.prior],
                self._on_step,
                checkpoint[1] if checkpoint else None,
                self._on_inner,
            )
        except SamplingCancelled:
            return self._stopped()
        if result.resumed_from_step is not None:
            self._count_resumed(result.resumed_from_step)
        for fallback in result.memory_fallbacks:
            telemetry.OUT_OF_MEMORY.labels(job.prior, fallback).inc()
        store.enter(self.claim, Phase.STORING)
        with telemetry.ARTIFACT_PUT.labels(job.prior).time():
            stored = retried(lambda: self._store(result), settings.storage_seconds)
        resumed, metrics = result.resumed_from_step, self._metrics(result)
        return "succeeded" if store.succeed(self.claim, stored, metrics, resumed) else "lost"

    def _on_step(self, progress: Progress) -> bool:
        """Stores preview, checkpoint and event of a finished step; returns whether to continue."""
        self._store_preview(progress)
        event = {
            **progress.event(),
            "seconds_left": self.pace.seconds_left(progress.step, progress.total),
            "preview": self.preview is not None,
        }
        place = JobProgress.model_validate(event)
        with telemetry.CHECKPOINT.labels(self.job.prior).time():
            control = self.worker.store.step(
                self.claim,
                place,
                event,
                progress.checkpoint(),
                self.preview.file if self.preview else "",
                self.preview.bytes if self.preview else 0,
            )
        telemetry.observe_step(self.job.prior, progress)
        self.steps += 1
        now = datetime.now(UTC)
        tracing.record(
            "step",
            self.span.traceparent,
            now - timedelta(seconds=progress.seconds),
            now,
            step=progress.step,
            misfit=place.misfit,
        )
        if control != "run":
            self.stop = control
        elif progress.step < progress.total:
            self._check_limits()
        return self.stop is None

    def _on_inner(self, info: InnerInfo) -> bool:
        """Sends the inner progress of a long step; returns whether to continue.

        Called at least every 100 ms of computing. It does not query the store for a stop; the
        heartbeat does.
        """
        self._check_limits()
        if self.stop is None and self.pace.pulse_is_due():
            preview = self._inner_preview(info)
            event = {**self.pace.inner_event(info), "preview": bool(preview)}
            self._obey(lambda: self.worker.store.pulse(self.claim, event, preview))
        return self.stop is None

    def _inner_preview(self, info: InnerInfo) -> bytes:
        """JPEG of the estimate within the step, about once a second; otherwise empty."""
        if info.picture is None or not self.pace.preview_is_due():
            return b""
        with telemetry.PREVIEW.labels(self.job.prior).time():
            return small_preview(info.picture())

    def _check_limits(self) -> None:
        """Stops the attempt if the worker drains or the job exceeds its time limit."""
        if self.stop is not None:
            return
        if draining.value:
            self.stop = "drain"
        elif time.monotonic() - self.started > settings.max_job_seconds:
            self.stop = "time limit"

    def _store_preview(self, progress: Progress) -> None:
        """Stores the step's preview.

        Previews are stored with the artifacts. Redis holds only their names: their size grows with
        the picture and the steps, and Redis must not evict anything.
        """
        with telemetry.PREVIEW.labels(self.job.prior).time():
            jpeg = progress.preview()
            if jpeg is None:
                return
            try:
                self.preview = self.worker.artifacts.put(
                    self.job.id,
                    f"preview-{progress.step}.jpg",
                    jpeg,
                    "image/jpeg",
                    durable=False,  # an fsync at every step would slow the job down
                )
            except StorageUnavailable as error:
                log.warning(
                    "Job %s has no preview of step %d: %s", self.job.id, progress.step, error
                )
                self.preview = None
        if progress.step == 1 and self.job.created_at is not None:
            telemetry.FIRST_PREVIEW.labels(self.job.prior).observe(
                (datetime.now(UTC) - self.job.created_at).total_seconds()
            )

    def _count_resumed(self, step: int) -> None:
        """Counts a resumed job and the steps that it repeats."""
        reason = self.job.stopped_by or "lost"
        telemetry.RESUMES.labels(self.job.prior, reason).inc()
        known = self.job.progress.step if self.job.progress else step
        telemetry.STEPS_WASTED.labels(self.job.prior, reason).inc(known - step)

    def _keep_alive(self) -> None:
        """Renews the lease during long steps and reads whether to stop."""
        while not self._over.wait(settings.heartbeat_seconds):
            self._obey(lambda: self.worker.store.heartbeat(self.claim))

    def _obey(self, call: Callable[[], Control]) -> None:
        """Stops the attempt if the store says so; continues if the store does not answer."""
        try:
            control = call()
        except RedisError as error:
            log.warning("Job %s: the job store does not answer: %s", self.job.id, error)
            return
        if control != "run" and self.stop is None:
            self.stop = control

    def _stopped(self) -> str:
        """Records why the attempt stopped; returns the outcome."""
        store = self.worker.store
        match self.stop:
            case "cancel":
                shown = self.preview
                partial = [shown.model_copy(update={"name": "partial.jpg"})] if shown else []
                store.canceled(self.claim, partial)
                return "canceled"
            case "deadline" | "time limit":
                store.fail(self.claim, DEADLINE_EXCEEDED if self.stop == "deadline" else TIME_LIMIT)
                return "failed"
            case "drain":
                if store.release(self.claim):
                    app.send_task(RUN_JOB, args=[self.job.id], queue=queue_name(self.job.prior))
                return "released"
        # another worker owns the job and has resumed it from the last checkpoint
        return "lost"

    def _store(self, result: Result) -> list[Artifact]:
        sidecar = {"job": self.job.id, **result.sidecar()}
        put, job_id = self.worker.artifacts.put, self.job.id
        stored = [
            put(job_id, "result.json", json.dumps(sidecar, indent=1).encode(), "application/json")
        ]
        return stored + [put(job_id, *file) for file in result.files()]

    def _metrics(self, result: Result) -> dict[str, Any]:
        waited = (
            (self.job.started_at - self.job.created_at).total_seconds()
            if self.job.started_at and self.job.created_at
            else 0.0
        )
        return {
            "wait_seconds": waited,
            "run_seconds": time.monotonic() - self.started,
            "memory_fallbacks": result.memory_fallbacks,
            **result.metrics(),
        }

    def _exit_if_poisoned(self, error: Exception) -> None:
        """After a CUDA error the process cannot compute any more: exit immediately; a new child
        resumes the job.
        """
        if "CUDA error" in str(error):
            log.critical("Job %s: the CUDA context is lost: %s", self.job.id, error)
            os._exit(POISONED_DEVICE)
