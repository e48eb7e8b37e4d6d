"""The one Celery task: take a job, compute it, tell everybody how it goes."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from redis.exceptions import RedisError

from aps_core.errors import APSError, InsufficientMemory, SamplingCancelled
from aps_core.imaging import images
from aps_core.tasks import Inputs, Progress, Result, run, validate_spec
from service.jobs import (
    DEADLINE_EXCEEDED,
    Artifact,
    Claim,
    Job,
    JobError,
    Phase,
    StorageUnavailable,
)
from service.jobs import Progress as JobProgress
from service.settings import RUN_JOB, queue_name
from service.telemetry import logs, tracing
from worker import telemetry
from worker.app import app, settings
from worker.lifecycle import Worker, draining, this_worker
from worker.retry import retried

log = logging.getLogger(__name__)

POISONED_DEVICE = 70
"""Exit status of a child whose CUDA context is beyond repair; the parent starts another."""

Stop = Literal["cancel", "deadline", "lost", "drain", "time limit"]

TIME_LIMIT = JobError(
    code="time_limit_exceeded",
    title="The job ran too long",
    detail=f"The job was stopped after {settings.max_job_seconds} s of computing.",
)
INTERNAL = JobError(
    code="internal_error",
    title="Internal error",
    detail="The worker met an error it does not know. It has been logged with the job's id.",
)


@app.task(name=RUN_JOB)  # type: ignore[untyped-decorator]
def run_job(job_id: str) -> None:
    """Runs the job that comes first, which may be another than the one rung for: the store keeps
    the order, not the messages.

    A message that came twice finds nothing to do, or takes the next job a little early.
    """
    worker = this_worker()
    rung = worker.store.get(job_id)
    worker.heard_at = time.monotonic()
    if rung is None or draining.value or worker.problem:
        return  # a waiting job stays queued and is rung for again
    claim = worker.store.take(rung.prior, worker.name)
    job = worker.store.get(claim.job_id) if claim else None
    if claim and job:
        worker.busy = True
        try:
            with (
                logs.about(job_id=job.id, request_id=job.request_id, trace=job.trace_id),
                tracing.span(
                    f"job {job.task}",
                    job.traceparent,
                    job=job.id,
                    task=job.task,
                    prior=job.prior,
                    attempt=job.attempt,
                ) as span,
            ):
                JobRun(worker, claim, job, span).run()
        finally:
            worker.heard_at, worker.busy = time.monotonic(), False


class JobRun:
    """One attempt at one job, from its claim to whatever ends it."""

    def __init__(self, worker: Worker, claim: Claim, job: Job, span: tracing.Span) -> None:
        self.worker, self.claim, self.job, self.span = worker, claim, job, span
        self.started = time.monotonic()
        self.stop: Stop | None = None
        self.preview: Artifact | None = None
        self.steps = 0
        self._over = threading.Event()

    def run(self) -> None:
        """Computes the job and ends it, one way or another."""
        telemetry.observe_claim(self.job)
        if (
            self.job.attempt == 1
            and self.job.created_at is not None
            and self.job.started_at is not None
        ):
            tracing.record("queue", self.job.traceparent, self.job.created_at, self.job.started_at)
        beat = threading.Thread(target=self._keep_alive, name="heartbeat", daemon=True)
        beat.start()
        outcome = "failed"
        try:
            outcome = self._attempt()
        except APSError as error:
            self.worker.store.fail(self.claim, JobError.of(error))
            if isinstance(error, InsufficientMemory):
                telemetry.OUT_OF_MEMORY.labels(self.job.prior, "failed").inc()
        except Exception as error:
            self._exit_if_poisoned(error)
            self.worker.store.fail(self.claim, INTERNAL)
            raise  # for Celery to log
        finally:
            self._over.set()
            beat.join()
            self._count(outcome)

    def _count(self, outcome: str) -> None:
        """Tells Prometheus, and the trace, how the attempt ended."""
        self.span.note(outcome=outcome, steps=self.steps)
        telemetry.JOB_TIME.labels(self.job.prior, outcome).observe(time.monotonic() - self.started)
        if outcome == "lost":
            telemetry.LEASES_LOST.inc()
        elif outcome != "released" and (ended := self.worker.store.get(self.job.id)) is not None:
            telemetry.observe_end(ended)

    def _attempt(self) -> str:
        store, job = self.worker.store, self.job
        spec = validate_spec(job.spec)
        pictures = {
            name: images.open_image(self.worker.artifacts.get(job.id, blob.file))
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
            )
        except SamplingCancelled:
            return self._stopped()
        if result.resumed_from_step is not None:
            self._count_resumed(result.resumed_from_step)
        for rung in result.memory_rungs:
            telemetry.OUT_OF_MEMORY.labels(job.prior, rung).inc()
        store.enter(self.claim, Phase.STORING)
        with telemetry.ARTIFACT_PUT.labels(job.prior).time():
            stored = retried(lambda: self._store(result), settings.storage_seconds)
        finished = store.succeed(
            self.claim, stored, self._metrics(result), result.resumed_from_step
        )
        return "succeeded" if finished else "lost"

    def _on_step(self, progress: Progress) -> bool:
        """Preview, checkpoint and event of a finished step; returns whether to go on."""
        self._show(progress)
        event = {**progress.event(), "preview": self.preview is not None}
        place = JobProgress.model_validate(event)
        with telemetry.CHECKPOINT.labels(self.job.prior).time():
            control = self.worker.store.step(
                self.claim,
                place,
                event,
                progress.checkpoint(),
                self.preview.file if self.preview else "",
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
        elif progress.step < progress.total and self.stop is None:
            self.stop = (
                "drain"
                if draining.value
                else "time limit"
                if time.monotonic() - self.started > settings.max_job_seconds
                else None
            )
        return self.stop is None

    def _show(self, progress: Progress) -> None:
        """Stores the step's preview. They lie with the artifacts, not in Redis: they are the one
        thing of a job that grows with picture and steps, and Redis may evict nothing. Only their
        names are kept there.
        """
        with telemetry.PREVIEW.labels(self.job.prior).time():
            jpeg = progress.preview()
            if jpeg is None:
                return
            try:
                self.preview = self.worker.artifacts.put(
                    self.job.id, f"preview-{progress.step}.jpg", jpeg, "image/jpeg"
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
        """How much of a stopped attempt had to be done again."""
        reason = self.job.stopped_by or "lost"
        telemetry.RESUMES.labels(self.job.prior, reason).inc()
        known = self.job.progress.step if self.job.progress else step
        telemetry.STEPS_WASTED.labels(self.job.prior, reason).inc(known - step)

    def _keep_alive(self) -> None:
        """Extends the lease while a step takes long, and listens for a cancellation."""
        while not self._over.wait(settings.heartbeat_seconds):
            try:
                control = self.worker.store.heartbeat(self.claim)
            except RedisError as error:
                log.warning("Job %s: heartbeat failed: %s", self.job.id, error)
                continue
            if control != "run" and self.stop is None:
                self.stop = control

    def _stopped(self) -> str:
        """Ends an attempt that was asked to stop."""
        store = self.worker.store
        match self.stop:
            case "cancel":
                partial = (
                    [self.preview.model_copy(update={"name": "partial.jpg"})]
                    if self.preview
                    else []
                )
                store.canceled(self.claim, partial)
                return "canceled"
            case "deadline" | "time limit":
                store.fail(self.claim, DEADLINE_EXCEEDED if self.stop == "deadline" else TIME_LIMIT)
                return "failed"
            case "drain":
                if store.release(self.claim):
                    app.send_task(RUN_JOB, args=[self.job.id], queue=queue_name(self.job.prior))
                return "released"
        # somebody else has the job; what was computed here is theirs already or worthless
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
            "memory_rungs": result.memory_rungs,
            **result.metrics(),
        }

    def _exit_if_poisoned(self, error: Exception) -> None:
        """A CUDA error spoils the process: leave without a word, so that the next child resumes the
        job.
        """
        if "CUDA error" in str(error):
            log.critical("Job %s: the CUDA context is lost: %s", self.job.id, error)
            os._exit(POISONED_DEVICE)
