"""The sweeper: requeues jobs of lost workers, republishes lost messages, deletes expired files."""

from __future__ import annotations

import logging
import threading

from redis.exceptions import RedisError

from service.dispatch.notifier import JobNotifier
from service.jobs import ArtifactStore, JobStore, KnownPictures, StorageUnavailable
from service.settings import Settings
from service.telemetry import metrics

log = logging.getLogger(__name__)

ORPHAN_SECONDS = 3600
"""Minimum age of files without a record before they are deleted, in seconds since a sweep first
found them. Their job's record may still be about to be written. Measured by the store's clock.
"""

FILES_SECONDS = 300
"""Interval between sweeps of the files, in seconds; each folder costs one request to the store."""


class Sweeper:
    """A thread in every API process; the store elects one process at a time to do the work."""

    def __init__(
        self, settings: Settings, store: JobStore, artifacts: ArtifactStore, notifier: JobNotifier
    ) -> None:
        self.settings = settings
        self.store = store
        self.artifacts = artifacts
        self.notifier = notifier
        self.known = KnownPictures(store.redis, settings.key_prefix, settings.job_ttl_seconds)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread and waits for it."""
        self._stopped.set()
        self._thread.join()

    def sweep(self) -> None:
        """Runs one sweep."""
        for job in self.store.expired():
            metrics.LEASES_EXPIRED.labels(job.prior).inc()
            log.warning("Job %s: its worker's lease expired; it is %s now", job.id, job.state)
            if not job.state.terminal:
                self.notifier.notify(job)
        for job in self.store.overdue():
            log.info("Job %s: its deadline passed while it was queued", job.id)
        for prior in self.settings.priors:
            messages = self.store.redis.llen(self.settings.message_list(prior))
            for job in self.store.unclaimed(prior, self.settings.republish_seconds, messages):
                metrics.REPUBLISHED.labels(job.prior).inc()
                log.info("Job %s: still unclaimed; republishing its message", job.id)
                self.notifier.notify(job)
        self.store.forget_expired()
        if self.store.lead("files", FILES_SECONDS):
            self._sweep_files()

    def _sweep_files(self) -> None:
        now = self.store.now()
        orphan_seconds = min(ORPHAN_SECONDS, self.settings.job_ttl_seconds)
        for job_id in self.artifacts.jobs():
            job = self.store.get(job_id)
            if job is not None:
                if job.expired(now):
                    self.artifacts.delete(job_id)
            elif self.known.keeps(job_id):
                continue
            elif self.store.orphaned_seconds(job_id) >= orphan_seconds:
                self.artifacts.delete(job_id)
                self.store.forget_orphan(job_id)

    def _run(self) -> None:
        while not self._stopped.wait(self.settings.sweep_seconds):
            try:
                if self.store.lead("jobs", self.settings.sweep_seconds * 0.9):
                    self.sweep()
            except (RedisError, StorageUnavailable) as error:
                log.warning("Sweep failed: %s", error)
            except Exception:  # a record that cannot be read; without sweeps, lost jobs stay lost
                log.exception("Sweep failed")
