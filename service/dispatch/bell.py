"""The doorbell: tells the workers of a prior that a job waits. Carries the job's id and nothing
else.
"""

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


class Bell:
    """Sends messages; the receiving end is :mod:`worker.app`."""

    def __init__(self, settings: Settings) -> None:
        self._app = Celery("aps-bell", broker=settings.broker_url, set_as_current=False)
        self._app.conf.update(
            task_ignore_result=True,
            task_serializer="json",
            task_send_sent_event=False,
            broker_transport_options=settings.broker_transport_options,
        )
        self._soon: SimpleQueue[Job | None] = SimpleQueue()
        self._ringer: threading.Thread | None = None
        self._first = threading.Lock()

    def ring_soon(self, job: Job) -> None:
        """Announces a job without waiting for it: the job is stored, and its client need not know
        how workers hear of it.
        """
        with self._first:
            if self._ringer is None:
                self._ringer = threading.Thread(target=self._ring_on, name="bell", daemon=True)
                self._ringer.start()
        self._soon.put(job)

    def _ring_on(self) -> None:
        while (job := self._soon.get()) is not None:
            self.ring(job)

    def ring(self, job: Job) -> None:
        """Announces a job. A bell that does not ring loses nothing: the sweeper rings again."""
        try:
            self._app.send_task(RUN_JOB, args=[job.id], queue=queue_name(job.prior))
        except (OperationalError, RedisError) as error:  # the second: a full server refuses it
            log.warning("Could not ring for job %s: %s", job.id, error)

    def close(self) -> None:
        """Rings what is to be rung, and closes the connections."""
        if self._ringer is not None:
            self._soon.put(None)
            self._ringer.join(timeout=5)
        self._app.close()
