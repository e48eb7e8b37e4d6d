"""The single Celery task: claims the next job of a prior and computes it."""

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
    """Runs the next job of the prior of ``job_id``. It may be another job than the one the message
    names: the store keeps the order, not the broker.

    A duplicate message finds no job, or takes the next one slightly early.
    """
    worker = this_worker()
    announced = worker.store.get(job_id)
    worker.last_message_at = time.monotonic()
    if announced is None or draining.value or worker.problem:
        return  # the job stays queued; the sweeper republishes its message
    claim = worker.store.take(announced.prior, worker.name)
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
            worker.last_message_at, worker.busy = time.monotonic(), False
        _publish_if_short_of_messages(worker, job)


def _publish_if_short_of_messages(worker: Worker, job: Job) -> None:
    """Publishes a message when the broker holds fewer messages than jobs are queued. A job blocked
    by its tenant's quota has already consumed its message; the end of ``job`` may unblock it, and
    it should not have to wait for the sweeper.
    """
    queued = worker.store.depth(job.prior)
    if queued > worker.store.redis.llen(settings.message_list(job.prior)):
        app.send_task(RUN_JOB, args=[job.id], queue=queue_name(job.prior))
