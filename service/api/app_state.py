"""State of an API process: connections and helpers shared by all requests."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Self

from fastapi import Request

from aps_contract import JobView
from service.access.keys import KeyStore
from service.access.rate_limit import RateLimiter
from service.api.jobs.views import view
from service.api.problems.errors import NotFound
from service.dispatch.notifier import JobNotifier
from service.jobs import (
    ArtifactStore,
    BatchStore,
    Job,
    JobStore,
    KnownPictures,
    Outbox,
    StorageUnavailable,
    WorkerInfo,
    WorkerRegistry,
    open_store,
)
from service.settings import Settings
from service.uploads.decoder import CONCURRENT_DECODES, Decoder
from service.uploads.fetch_url import CONCURRENT_FETCHES
from service.uploads.lanes import Lane
from service.uploads.pictures import Pictures

log = logging.getLogger(__name__)

JOB_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Services:
    """Connections and helpers of an API process."""

    settings: Settings
    store: JobStore
    workers: WorkerRegistry
    artifacts: ArtifactStore
    outbox: Outbox
    batches: BatchStore
    notifier: JobNotifier
    keys: KeyStore
    rates: RateLimiter
    authentication: Lane
    decoder: Decoder
    pictures: Pictures

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Creates the services; connections open at first use."""
        store, workers = open_store(settings)
        redis, prefix = store.redis, settings.key_prefix
        artifacts, decoder = ArtifactStore(settings.artifacts), Decoder(settings)
        pictures = Pictures(
            settings,
            decoder,
            artifacts,
            KnownPictures(redis, prefix, settings.job_ttl_seconds),
            fetching=Lane(
                "URLs to fetch",
                CONCURRENT_FETCHES,
                settings.fetch_seconds,
                share=_share(settings, CONCURRENT_FETCHES),
            ),
            decoding=Lane(
                "pictures to decode",
                CONCURRENT_DECODES,
                settings.decode_seconds,
                share=_share(settings, CONCURRENT_DECODES),
            ),
        )
        return cls(
            settings=settings,
            store=store,
            workers=workers,
            artifacts=artifacts,
            outbox=Outbox(redis, prefix),
            batches=BatchStore(redis, prefix),
            notifier=JobNotifier(settings),
            keys=KeyStore(redis, prefix, settings.keys_file),
            rates=RateLimiter(redis, prefix, settings.requests_per_second, settings.request_burst),
            authentication=Lane("requests", threads=8, wait_seconds=10, share=2, line=1000),
            decoder=decoder,
            pictures=pictures,
        )

    def discard_files(self, job_id: str) -> None:
        """Removes a job's files; on failure the sweeper removes them later."""
        try:
            self.artifacts.delete(job_id)
        except StorageUnavailable as error:
            log.warning("%s", error)

    def capable(self) -> list[WorkerInfo]:
        """Workers that jobs are accepted for: the live ones and, with ``scale_to_zero``, the last
        known one of each prior.
        """
        return self.workers.known() if self.settings.scale_to_zero else self.workers.live()

    def job(self, job_id: str, tenant: str) -> Job:
        """The record of a tenant's job.

        Raises:
            NotFound: it does not exist or belongs to another tenant; the response is the same.
        """
        # the pattern keeps clients from addressing other keys of the store
        job = self.store.get(job_id) if JOB_ID.fullmatch(job_id) else None
        if job is None or job.tenant != tenant:
            raise NotFound(f"There is no job '{job_id[:80]}'.")
        return job

    def shown(self, job_id: str, tenant: str) -> JobView:
        """The public view of a tenant's job.

        Raises:
            NotFound: as for :meth:`job`.
        """
        return self.view(self.job(job_id, tenant))

    def view(self, job: Job) -> JobView:
        """The public view of a job record."""
        return view(job, self.store.queue_position(job))

    def close(self) -> None:
        """Closes all connections and stops the decoder's processes."""
        self.decoder.close()
        self.notifier.close()
        self.store.redis.close()


def services_of(request: Request) -> Services:
    """The services of the application that handles ``request``."""
    services: Services = request.app.state.services
    return services


def _share(settings: Settings, threads: int) -> int:
    """Threads that one tenant may use: half, or all if there is only one tenant."""
    return threads // 2 if settings.auth_required else threads
