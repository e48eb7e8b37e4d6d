"""The Celery application of the workers: ``celery -A worker.app worker``.

Each device has one parent process with one prefork child; only the child computes. Celery messages
carry job ids only. Job state lives in :mod:`service.jobs`, so Celery's results, events and retries
are off.
"""

from __future__ import annotations

from celery import Celery

from service.settings import Settings, queue_name

settings = Settings()

app = Celery("aps", broker=settings.broker_url, include=["worker.tasks", "worker.lifecycle"])
app.conf.update(
    # results and errors are in the job's record
    result_backend=None,
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    # the default can also read pickles, which execute code
    task_serializer="json",
    accept_content=["json"],
    result_accept_content=["json"],
    # if a child is killed, its message is redelivered and the next child resumes the job
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_acks_on_failure=True,  # a failed job is recorded as failed, not redelivered
    task_acks_on_timeout=True,  # likewise
    # progress is published by service.jobs, and `aps jobs` shows the workers
    task_track_started=False,
    task_send_sent_event=False,
    worker_send_task_events=False,
    worker_enable_remote_control=False,  # whoever reaches the broker could stop workers
    # a waiting job belongs to the first free worker
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=True,
    # one device; a child that is killed does not end the worker
    worker_concurrency=1,
    worker_pool="prefork",
    worker_max_tasks_per_child=None,  # a new child has to load the priors again
    worker_max_memory_per_child=None,
    # longer than the slowest load; otherwise each new child is killed while it loads
    worker_proc_alive_timeout=900,
    # the lease decides whether a job goes on, not the connection to the broker
    worker_cancel_long_running_tasks_on_connection_loss=False,
    # service.telemetry.logs sets up the logs
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    # a worker may start before Redis, and outlives its restarts
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    # a message is delivered again only after the longest job
    broker_transport_options=settings.broker_transport_options,
    visibility_timeout=settings.visibility_timeout,
    task_soft_time_limit=None,  # it would interrupt a step; jobs stop between steps
    # last resort: the deadline is checked during sampling
    task_time_limit=settings.max_job_seconds + 120,
    task_queues={
        name: {"exchange": name, "routing_key": name} for name in map(queue_name, settings.priors)
    },
)
