"""Repairs: jobs of dead workers, messages that vanished, files nobody will ask for again."""

from __future__ import annotations

import logging
import threading

from redis.exceptions import RedisError

from service.dispatch.bell import Bell
from service.jobs import ArtifactStore, JobStore, KnownPictures, StorageUnavailable
from service.settings import Settings
from service.telemetry import metrics

log = logging.getLogger(__name__)

ORPHAN_SECONDS = 3600
"""Files without a record are left alone for this long after they were first seen by a sweep: their
job may be about to be written. No clock but the store's says how long that was.
"""

FILES_SECONDS = 300
"""Files are looked through this often; every old folder costs a question to the store."""


class Sweeper:
    """A thread in every API process; the store lets one of them work at a time."""

    def __init__(
        self, settings: Settings, store: JobStore, artifacts: ArtifactStore, bell: Bell
    ) -> None:
        self.settings, self.store, self.artifacts, self.bell = settings, store, artifacts, bell
        self.known = KnownPictures(store.redis, settings.key_prefix, settings.job_ttl_seconds)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        """Begins sweeping."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._over.set()
        self._thread.join()

    def sweep(self) -> None:
        """One round."""
        for job in self.store.expired():
            metrics.LEASES_EXPIRED.labels(job.prior).inc()
            log.warning("Job %s: its worker went silent; it is %s now", job.id, job.state)
            if not job.state.terminal:
                self.bell.ring(job)
        for job in self.store.overdue():
            log.info("Job %s: its deadline passed while it waited", job.id)
        for prior in self.settings.priors:
            messages = self.store.redis.llen(self.settings.message_list(prior))
            for job in self.store.unclaimed(prior, self.settings.ring_seconds, messages):
                metrics.RUNG_AGAIN.labels(job.prior).inc()
                log.info("Job %s: still unclaimed; ringing again", job.id)
                self.bell.ring(job)
        self.store.forget_expired()
        if self.store.lead("files", FILES_SECONDS):
            self._sweep_files()

    def _sweep_files(self) -> None:
        now, patience = self.store.now(), min(ORPHAN_SECONDS, self.settings.job_ttl_seconds)
        for job_id in self.artifacts.jobs():
            job = self.store.get(job_id)
            if job is not None:
                if job.expired(now):
                    self.artifacts.delete(job_id)
            elif not self.known.keeps(job_id) and self.store.orphaned_seconds(job_id) >= patience:
                self.artifacts.delete(job_id)
                self.store.forget_orphan(job_id)

    def _run(self) -> None:
        while not self._over.wait(self.settings.sweep_seconds):
            try:
                if self.store.lead("jobs", self.settings.sweep_seconds * 0.9):
                    self.sweep()
            except (RedisError, StorageUnavailable) as error:
                log.warning("Sweep failed: %s", error)
