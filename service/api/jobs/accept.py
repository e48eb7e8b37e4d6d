"""Accepts jobs: checks a submission, then stores its pictures and its record."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from redis.exceptions import RedisError
from starlette.concurrency import run_in_threadpool

from aps_contract import JobView
from aps_core.errors import InvalidSpec, WeightsMissing, about
from aps_core.tasks import Inputs, TaskSpec, validate_spec
from aps_core.tasks.content import leaves_prior_open, specialised, with_priors
from aps_core.tasks.estimate import Capacity, Estimate, check_seconds, check_size
from service.api.app_state import Services
from service.api.jobs.availability import check_weights, computable, worker_for
from service.api.jobs.options import Options
from service.api.jobs.views import view
from service.api.problems.errors import Gone, NotFound, NoWorker, PriorNotLoaded, UnknownPicture
from service.egress.public_only import check_url
from service.jobs import (
    IdempotencyConflict,
    Job,
    NotNow,
    Quota,
    StorageUnavailable,
    Terms,
    WorkerInfo,
    new_job_id,
)
from service.uploads.pictures import is_hash
from service.uploads.upload import Source, Upload, digest

log = logging.getLogger(__name__)


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
    batch: str | None = None
    image_name: str = "image"
    """What the request calls the picture of the slot 'image'."""

    def called(self, slot: str) -> str:
        """What the request calls the picture of a slot."""
        return self.image_name if slot == "image" else slot

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
    """A submission with a valid, resolved spec and a worker that can compute it."""

    spec: TaskSpec
    worker: WorkerInfo
    terms: Terms
    max_job_seconds: float

    def check(self, uploads: Mapping[str, Upload]) -> tuple[Estimate, str | None]:
        """Checks the sizes of all pictures. Returns the cost, and the slot of the picture whose
        mask must be checked too, or None.

        Raises:
            InvalidSpec: the pictures do not fit the spec or each other.
            ImageTooLarge, InsufficientMemory, JobTooLong: see :meth:`cost`.
        """
        inputs = Inputs(**{name: upload.picture for name, upload in uploads.items()})
        self.spec.check_sizes(inputs)
        cost = self.cost(uploads["image"].size if "image" in uploads else None)
        return cost, self.spec.mask_slot(inputs)

    def cost(self, image: tuple[int, int] | None) -> Estimate:
        """Estimates the cost for an upload of this size (width, height).

        Raises:
            ImageTooLarge, InsufficientMemory: it exceeds the worker's limits.
            JobTooLong: its predicted duration exceeds the limit.
        """
        worker, most = self.worker, self.max_job_seconds
        capacity, pace = Capacity(worker.job_bytes, worker.token_bytes), worker.seconds_per_token
        cost = check_size(self.spec, image, worker.max_pixels, pace, capacity, most)
        check_seconds(self.spec, image, cost, most, pace)
        return cost


async def accept(services: Services, submission: Submission) -> tuple[JobView, bool]:
    """Accepts a job. Returns the job, and whether an earlier request with the same idempotency
    key had already created it. Stores nothing if it raises.

    The spec is checked first, then the sizes of the pictures, then the pixels of mask and kernel.
    They are decoded only in child processes. If the request leaves the prior open, it is the one
    specialised in what the picture shows, if the service offers it.

    Raises:
        InvalidSpec, pydantic.ValidationError: the spec is invalid, or does not fit the pictures.
        ImageRejected: a picture is refused.
        UrlRefused, EgressFailed: a URL is refused or cannot be fetched.
        UnknownPicture: the client has no stored picture with this hash.
        PriorNotLoaded, WeightsMissing, NoWorker: no worker can compute it, or none now.
        IdempotencyConflict, QuotaExceeded, QueueFull: see :meth:`service.jobs.JobStore.submit`.
        Gone: the job of an earlier identical request has been deleted.
        Busy: too many pictures are being decoded.
    """
    tenant = submission.tenant
    uploads: dict[str, Upload] = {}
    try:
        draft = await run_in_threadpool(_begin, services, submission, uploads)
        if not isinstance(draft, Draft):
            return draft
        for name, sent in submission.pictures.items():
            if name not in uploads:
                called = submission.called(name)
                with about(called):
                    uploads[name] = await services.pictures.read(sent, called, tenant)
        if _leaves_prior_open(services, submission):
            shown = "whole" if "whole" in uploads else "image"
            text = await services.pictures.shows_text(uploads[shown], shown, tenant)
            prior = specialised(text, submission.spec, services.settings.priors)
            draft = await run_in_threadpool(_with_prior, services, submission, draft, prior)
        cost, slot = draft.check(uploads)
        if slot is not None:
            with about(submission.called(slot)):
                draft.spec.check_mask(await services.pictures.coverage(uploads[slot], slot, tenant))
        if "kernel" in uploads:
            await services.pictures.check_kernel(uploads["kernel"], tenant)
        return await services.pictures.decoding.run(
            tenant, _stored, services, submission, draft, uploads, cost
        )
    finally:
        for upload in uploads.values():
            upload.file.close()


def _begin(
    services: Services, submission: Submission, uploads: dict[str, Upload]
) -> Draft | tuple[JobView, bool]:
    """Does everything that needs no decoding, in one thread: a job whose pictures are all stored
    and that leaves no choice of prior is accepted here. ``uploads`` receives the stored pictures.
    """
    draft = _draft(services, submission)
    if isinstance(draft, JobView):
        return draft, True
    for name, sent in submission.pictures.items():
        if is_hash(sent):
            called = submission.called(name)
            uploads[name] = services.pictures.stored(sent, called, submission.tenant)
    complete = uploads.keys() == submission.pictures.keys()
    if complete and not _leaves_prior_open(services, submission):
        cost, slot = draft.check(uploads)
        if slot is None and "kernel" not in uploads:
            return _stored(services, submission, draft, uploads, cost)
    return draft


def validated(task: str, spec: dict[str, Any]) -> TaskSpec:
    """The spec of a task.

    Raises:
        InvalidSpec, pydantic.ValidationError: it is invalid.
    """
    try:
        return validate_spec({**spec, "type": task})
    except RecursionError as error:
        raise InvalidSpec("The spec is nested too deeply.") from error


def _draft(services: Services, submission: Submission) -> JobView | Draft:
    """Validates the spec and selects a worker; or the job of an earlier identical request."""
    terms = _terms(services, submission)
    if (before := services.store.submitted_before(terms, submission.tenant)) is not None:
        return _repeated(services, before, submission.tenant)
    given = [submission.spec]
    if _leaves_prior_open(services, submission):
        given = with_priors(submission.spec, services.settings.priors)
    specs = [validated(submission.task, each).resolved() for each in given]
    webhook = submission.options.webhook
    if webhook is not None:
        with about("webhook/url"):
            check_url(webhook.url, services.settings.webhook_allow_private)
    spec, worker = computable(specs, partial(_worker, services))
    return Draft(spec, worker, terms, services.settings.max_job_seconds)


def _leaves_prior_open(services: Services, submission: Submission) -> bool:
    """Whether the prior depends on what the picture shows."""
    return "image" in submission.pictures and leaves_prior_open(
        submission.task, submission.spec, services.settings.priors
    )


def _with_prior(
    services: Services, submission: Submission, draft: Draft, prior: str | None
) -> Draft:
    """The draft with this prior; None: the one for any picture."""
    given = submission.spec if prior is None else {**submission.spec, "prior": prior}
    spec = validated(submission.task, given).resolved()
    return replace(draft, spec=spec, worker=_worker(services, spec))


def _worker(services: Services, spec: TaskSpec) -> WorkerInfo:
    """A worker that can compute the job; refusals rest on the current list of workers."""

    def chosen(live: list[WorkerInfo]) -> WorkerInfo:
        worker = worker_for(spec.prior, services.settings.priors, live)
        check_weights(spec.checkpoints, spec.prior, live)
        return worker

    try:
        return chosen(services.workers.recent())
    except (PriorNotLoaded, WeightsMissing, NoWorker):
        return chosen(services.capable())


def _stored(
    services: Services,
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
            spec=spec.model_dump(mode="json"),
            inputs={
                name: services.pictures.put(job_id, name, upload)
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
            batch=submission.batch,
        )
        stands = services.store.submit(job, draft.terms)
    except (RedisError, StorageUnavailable, NotNow, IdempotencyConflict, UnknownPicture):
        services.discard_files(job_id)
        raise
    if stands.job is None:  # a concurrent identical request was stored first
        services.discard_files(job_id)
        return _repeated(services, stands.id, submission.tenant), True
    services.notifier.notify_soon(stands.job)
    log.info("Job %s: %s accepted, about %.1f s", job_id, job.task, cost.seconds)
    return view(stands.job, stands.queue_position), False


def _terms(services: Services, submission: Submission) -> Terms:
    return Terms(
        idempotency_key=submission.idempotency_key,
        fingerprint=submission.fingerprint() if submission.idempotency_key else "",
        max_queued=submission.quota.max_queued,
        max_backlog_seconds=services.settings.max_backlog_seconds,
        max_own_backlog_seconds=submission.quota.max_backlog_seconds,
        max_stored_bytes=submission.quota.max_stored_bytes,
    )


def _repeated(services: Services, job_id: str, tenant: str) -> JobView:
    try:
        return services.shown(job_id, tenant)
    except NotFound as error:
        raise Gone(f"The job of this Idempotency-Key, '{job_id}', has been deleted.") from error
