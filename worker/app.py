"""The Celery application of the workers: ``celery -A worker.app worker``.

One parent per device with one child (prefork, never solo); the child alone computes. Celery carries
job ids; :mod:`service.jobs` holds the truth, so no results, events or retries of Celery's are used.
"""

from __future__ import annotations

from celery import Celery

from service.settings import Settings, queue_name

settings = Settings()

app = Celery("aps", broker=settings.broker_url, include=["worker.tasks", "worker.lifecycle"])
app.conf.update(
    result_backend=None,
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    task_serializer="json",
    accept_content=["json"],
    result_accept_content=["json"],
    task_acks_late=True,
    # a killed child: the message goes back and the next child takes the job over
    task_reject_on_worker_lost=True,
    task_acks_on_failure=True,  # an error in a job is the job's own terminal state
    task_acks_on_timeout=True,
    task_track_started=False,
    task_send_sent_event=False,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=True,
    worker_concurrency=1,
    worker_pool="prefork",
    worker_max_tasks_per_child=None,  # a restart costs loading the prior
    worker_max_memory_per_child=None,
    # longer than the slowest load, or a respawned child is killed for ever
    worker_proc_alive_timeout=900,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options=settings.broker_transport_options,
    visibility_timeout=settings.visibility_timeout,
    task_soft_time_limit=None,
    task_time_limit=settings.max_job_seconds
    + 120,  # backstop; the deadline itself is checked at every step
    task_queues={
        name: {"exchange": name, "routing_key": name} for name in map(queue_name, settings.priors)
    },
)
