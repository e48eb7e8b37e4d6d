"""State of an API process, and the submission of jobs."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from fastapi import Request
from redis.exceptions import RedisError
from starlette.concurrency import run_in_threadpool

from aps_core.errors import InvalidSpec
from aps_core.runtime.estimate import Capacity, Estimate, check_seconds, check_size
from aps_core.tasks import Inputs, TaskSpec, validate_spec
from service.access.keys import KeyStore
from service.access.rate_limit import RateLimiter
from service.api.availability import check_weights, worker_for
from service.api.options import Options
from service.api.problems import Gone, NotFound, UnknownPicture
from service.api.views import JobView, view
from service.dispatch.notifier import JobNotifier
from service.egress.public_only import check_url
from service.jobs import (
    ArtifactStore,
    IdempotencyConflict,
    Job,
    JobStore,
    KnownPictures,
    NotNow,
    Outbox,
    Quota,
    StorageUnavailable,
    Terms,
    WorkerInfo,
    WorkerRegistry,
    new_job_id,
    open_store,
)
from service.settings import Settings
from service.uploads.decoder import CONCURRENT_DECODES, Decoder
from service.uploads.fetch_url import CONCURRENT_FETCHES
from service.uploads.lanes import Lane
from service.uploads.pictures import Pictures
from service.uploads.upload import Source, Upload, digest

log = logging.getLogger(__name__)

JOB_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Submission:
    """A parsed submission request."""

    task: str
    spec: dict[str, Any]
    pictures: Mapping[str, Source | str]
    """By slot name in :class:`Inputs`: a file, its URL, or the content hash of a stored picture."""
    tenant: str = ""
    quota: Quota = Quota()  # noqa: RUF009  frozen
    request_id: str = ""
    traceparent: str = ""
    idempotency_key: str = ""
    cancel_after_seconds: int | None = None
    options: Options = Options()  # noqa: RUF009  frozen

    def fingerprint(self) -> str:
        """SHA-256 of task, spec, pictures and options, independent of how they were encoded."""
        pictures = {
            name: data if isinstance(data, str) else digest(data)
            for name, data in self.pictures.items()
        }
        asked = [self.task, self.spec, pictures, self.options.model_dump(mode="json")]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Draft:
    """A submission with a valid spec and a worker that can compute it."""

    spec: TaskSpec
    worker: WorkerInfo
    terms: Terms
    max_job_seconds: float

    def cost(self, image: tuple[int, int] | None) -> Estimate:
        """Estimates the cost for an upload of this size (width, height).

        Raises:
            ImageTooLarge, InsufficientMemory: it exceeds the worker's limits.
            JobTooLong: its predicted duration exceeds the limit.
        """
        worker = self.worker
        capacity = Capacity(worker.job_bytes, worker.token_bytes)
        cost = check_size(self.spec, image, worker.max_pixels, worker.seconds_per_token, capacity)
        check_seconds(self.spec, image, cost, self.max_job_seconds, worker.seconds_per_token)
        return cost


@dataclass(frozen=True)
class Services:
    """Connections and helpers of an API process."""

    settings: Settings
    store: JobStore
    workers: WorkerRegistry
    artifacts: ArtifactStore
    outbox: Outbox
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
        keys = KeyStore(redis, prefix, settings.keys_file)
        artifacts, decoder = ArtifactStore(settings.artifacts), Decoder(settings)
        pictures = Pictures(
            settings,
            decoder,
            artifacts,
            KnownPictures(redis, prefix, settings.job_ttl_seconds),
            fetching=Lane("URLs to fetch", CONCURRENT_FETCHES, settings.fetch_seconds),
            decoding=Lane("pictures to decode", CONCURRENT_DECODES, settings.decode_seconds),
        )
        return cls(
            settings,
            store,
            workers,
            artifacts,
            Outbox(redis, prefix),
            JobNotifier(settings),
            keys,
            RateLimiter(redis, prefix, settings.requests_per_second, settings.request_burst),
            Lane("requests", threads=8, wait_seconds=10, share=2, line=1000),
            decoder,
            pictures,
        )

    async def submit(self, submission: Submission) -> tuple[JobView, bool]:
        """Accepts a job. Returns the job, and whether an earlier request with the same idempotency
        key had already created it. Stores nothing if it raises.

        The spec is checked first, then the sizes of the pictures, then the mask's coverage. Pixels
        are decoded only in the decoder's child processes.

        Raises:
            InvalidSpec, pydantic.ValidationError: the spec is invalid, alone or with these
                pictures.
            ImageRejected: a picture is refused.
            UrlRefused, EgressFailed: a URL is refused or cannot be fetched.
            UnknownPicture: the client has no stored picture with this hash.
            PriorNotLoaded, WeightsMissing, NoWorker: no worker can compute it, or none now.
            IdempotencyConflict, QuotaExceeded, QueueFull: see :meth:`service.jobs.JobStore.submit`.
            Gone: the job of an earlier identical request has been deleted.
            Busy: too many pictures are being decoded.
        """
        tenant = submission.tenant
        draft = await run_in_threadpool(self._draft, submission)
        if isinstance(draft, JobView):
            return draft, True
        uploads: dict[str, Upload] = {}
        try:
            for name, sent in submission.pictures.items():
                uploads[name] = await self.pictures.read(sent, name, tenant)
            return await self._fitted(submission, draft, uploads)
        finally:
            for upload in uploads.values():
                upload.file.close()

    async def _fitted(
        self, submission: Submission, draft: Draft, uploads: Mapping[str, Upload]
    ) -> tuple[JobView, bool]:
        """Checks the pictures' sizes and the mask's coverage, then accepts the job."""
        tenant = submission.tenant
        inputs = Inputs(**{name: upload.picture for name, upload in uploads.items()})
        draft.spec.check_sizes(inputs)
        cost = draft.cost(uploads["image"].size if "image" in uploads else None)
        if (slot := draft.spec.mask_slot(inputs)) is not None:
            draft.spec.check_mask(await self.pictures.coverage(uploads[slot], slot, tenant))
        large = any(not upload.holder for upload in uploads.values())
        arguments = (submission, draft, uploads, cost)
        return await (
            self.pictures.decoding.run(tenant, self._accept, *arguments)
            if large
            else run_in_threadpool(self._accept, *arguments)
        )

    def _draft(self, submission: Submission) -> JobView | Draft:
        """Validates the spec and selects a worker; or the job of an earlier identical request."""
        terms = self._terms(submission)
        if (before := self.store.submitted_before(terms, submission.tenant)) is not None:
            return self._repeated(before, submission.tenant)
        try:
            spec = validate_spec({**submission.spec, "type": submission.task})
        except RecursionError as error:
            raise InvalidSpec("The spec is nested too deeply.") from error
        webhook = submission.options.webhook
        if webhook is not None:
            check_url(webhook.url, self.settings.webhook_allow_private)
        live = self.capable()
        worker = worker_for(spec.prior, self.settings.priors, live)
        check_weights(spec.checkpoints, spec.prior, live)
        return Draft(spec, worker, terms, self.settings.max_job_seconds)

    def _accept(
        self,
        submission: Submission,
        draft: Draft,
        uploads: Mapping[str, Upload],
        cost: Estimate,
    ) -> tuple[JobView, bool]:
        """Stores the pictures and the job, and publishes its message."""
        job_id, spec = new_job_id(), draft.spec
        try:
            job = Job(
                id=job_id,
                task=submission.task,
                prior=spec.prior,
                spec=spec.resolved().model_dump(mode="json"),
                inputs={
                    name: self.pictures.put(job_id, name, upload)
                    for name, upload in uploads.items()
                },
                image_size=uploads["image"].size if "image" in uploads else None,
                output_size=cost.output,
                estimated_seconds=round(cost.seconds, 3),
                tenant=submission.tenant,
                max_running=submission.quota.max_running,
                request_id=submission.request_id,
                traceparent=submission.traceparent,
                cancel_after_seconds=submission.cancel_after_seconds,
                priority=submission.options.priority,
                webhook=submission.options.webhook,
            )
            stands = self.store.submit(job, draft.terms)
        except (RedisError, StorageUnavailable, NotNow, IdempotencyConflict, UnknownPicture):
            self.discard_files(job_id)
            raise
        if stands.job is None:  # a concurrent identical request was stored first
            self.discard_files(job_id)
            return self._repeated(stands.id, submission.tenant), True
        self.notifier.notify_soon(stands.job)
        log.info("Job %s: %s accepted, about %.1f s", job_id, job.task, cost.seconds)
        return view(stands.job, stands.queue_position), False

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

    def _terms(self, submission: Submission) -> Terms:
        return Terms(
            idempotency_key=submission.idempotency_key,
            fingerprint=submission.fingerprint() if submission.idempotency_key else "",
            max_queued=submission.quota.max_queued,
            max_backlog_seconds=self.settings.max_backlog_seconds,
            max_own_backlog_seconds=submission.quota.max_backlog_seconds,
            max_stored_bytes=submission.quota.max_stored_bytes,
        )

    def _repeated(self, job_id: str, tenant: str) -> JobView:
        try:
            return self.shown(job_id, tenant)
        except NotFound as error:
            raise Gone(f"The job of this Idempotency-Key, '{job_id}', has been deleted.") from error


def services_of(request: Request) -> Services:
    """The services of the application that handles ``request``."""
    services: Services = request.app.state.services
    return services
