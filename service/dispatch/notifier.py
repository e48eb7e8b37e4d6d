"""Publishes a Celery message for each waiting job; a message carries only the job's id."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from service.jobs import Job
from service.settings import RUN_JOB, Settings, queue_name

log = logging.getLogger(__name__)


class JobNotifier:
    """Publishes messages to the priors' queues; :mod:`worker.app` consumes them."""

    def __init__(self, settings: Settings) -> None:
        self._app = Celery("aps-notifier", broker=settings.broker_url, set_as_current=False)
        self._app.conf.update(
            task_ignore_result=True,  # results are in the job's record
            task_serializer="json",  # as in worker.app
            task_send_sent_event=False,  # nobody reads Celery's events
            # those of the workers, or the two sides would use different keys
            broker_transport_options=settings.broker_transport_options,
        )
        self._pending: SimpleQueue[Job | None] = SimpleQueue()
        self._publisher: threading.Thread | None = None
        self._start_lock = threading.Lock()

    def notify_soon(self, job: Job) -> None:
        """Publishes a job's message from a background thread, so that the HTTP response does not
        wait for the broker.
        """
        with self._start_lock:
            if self._publisher is None:
                self._publisher = threading.Thread(
                    target=self._publish_pending, name="notifier", daemon=True
                )
                self._publisher.start()
        self._pending.put(job)

    def _publish_pending(self) -> None:
        while (job := self._pending.get()) is not None:
            self.notify(job)

    def notify(self, job: Job) -> None:
        """Publishes a job's message. Failures are harmless: the sweeper republishes."""
        try:
            self._app.send_task(
                RUN_JOB,
                args=[job.id],
                queue=queue_name(job.prior),
                argsrepr=job.id,  # for logs; celery would compute it
                kwargsrepr="",
            )
        except (OperationalError, RedisError) as error:  # RedisError: the server is out of memory
            log.warning("Could not publish the message of job %s: %s", job.id, error)

    def close(self) -> None:
        """Publishes the pending messages and closes the connections."""
        if self._publisher is not None:
            self._pending.put(None)
            self._publisher.join(timeout=5)
        self._app.close()
