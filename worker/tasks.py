"""The one Celery task: take the job that comes first, and compute it."""

from __future__ import annotations

import time

from service.jobs import Job
from service.settings import RUN_JOB, queue_name
from service.telemetry import logs, tracing
from worker.app import app, settings
from worker.job_run import JobRun
from worker.lifecycle import Worker, draining, this_worker


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
        _ring_if_short_of_messages(worker, job)


def _ring_if_short_of_messages(worker: Worker, job: Job) -> None:
    """A job held back by its tenant's quota has used up its message; now that ``job`` is over it
    may be able to run, and need not wait for the sweeper.
    """
    waiting = worker.store.depth(job.prior)
    if waiting > worker.store.redis.llen(settings.message_list(job.prior)):
        app.send_task(RUN_JOB, args=[job.id], queue=queue_name(job.prior))
