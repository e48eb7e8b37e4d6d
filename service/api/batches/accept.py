"""Accepts batches: many restorations in one request. Every picture becomes an ordinary job.

A picture that is refused does not stop the others; the batch says which were refused and why. If
none is accepted, the request fails with the first picture's error. The jobs' idempotency keys
derive from the batch's, so a request that is repeated after a failure continues where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic as now

from starlette.concurrency import run_in_threadpool

from aps_core.errors import APSError
from service.api.app_state import Services
from service.api.batches.body import Picture
from service.api.jobs.accept import Submission, accept
from service.api.problems.errors import Busy
from service.jobs import Batch, Entry, IdempotencyConflict, NotNow, job_error, new_batch_id
from service.uploads.upload import digest

MAX_SECONDS = 60.0
"""Pictures that are not accepted within this time of a request are refused; it can be repeated."""
_LATE = Busy(
    f"Accepting the batch took longer than {MAX_SECONDS:g} s. Send the request again with its"
    " Idempotency-Key to continue."
)


async def accept_batch(
    services: Services, shared: Submission, images: Sequence[Picture]
) -> tuple[Batch, bool]:
    """Accepts the pictures that are not settled by an earlier, identical request.

    Args:
        services: Helpers of the process.
        shared: What all jobs have in common; it has no pictures.
        images: The pictures.

    Returns:
        The batch, and whether it existed.

    Raises:
        IdempotencyConflict: the key was used for another batch.
        APSError: no picture was accepted; the error is that of the first.
    """
    batch_id = new_batch_id(shared.tenant, shared.idempotency_key)
    shared = replace(shared, batch=batch_id)
    known = await run_in_threadpool(services.batches.get, batch_id)
    fingerprint = await run_in_threadpool(_fingerprint, shared, images)
    if known is not None and known.fingerprint != fingerprint:
        raise IdempotencyConflict(known.id, "batch")
    entries = list(known.entries) if known else [Entry() for _ in images]
    if known is not None and all(entry.settled for entry in entries):
        return known, True
    first = await _accept_each(services, shared, images, entries)
    if first is not None and not any(entry.job for entry in entries):
        raise first
    batch = Batch(
        id=batch_id,
        tenant=shared.tenant,
        fingerprint=fingerprint,
        created_at=known.created_at if known else datetime.now(UTC),
        entries=entries,
    )
    await run_in_threadpool(services.batches.put, batch)
    await run_in_threadpool(services.store.seal, batch.jobs[-1])
    return batch, known is not None


async def _accept_each(
    services: Services, shared: Submission, images: Sequence[Picture], entries: list[Entry]
) -> APSError | None:
    """Submits the pictures in order and writes the outcome of each to ``entries``.

    Returns:
        The first error, or None.
    """
    first: APSError | None = None
    stopped: APSError | None = None
    end = now() + MAX_SECONDS
    for place, image in enumerate(images):
        if entries[place].settled:
            continue
        if stopped is None and now() > end:
            stopped = _LATE
        error = stopped
        if error is None:
            key = f"{shared.batch}/{place}" if shared.idempotency_key else ""
            asked = replace(
                shared,
                pictures={"image": image},
                image_name=f"images/{place}",
                idempotency_key=key,
            )
            try:
                job, _ = await accept(services, asked)
                entries[place] = Entry(job=job.id)
                continue
            except APSError as refusal:
                error = refusal
                if isinstance(refusal, NotNow | Busy):  # the next ones would meet the same limit
                    stopped = refusal
        first = first or error
        entries[place] = Entry(error=job_error(error))
    return first


def _fingerprint(shared: Submission, images: Sequence[Picture]) -> str:
    sent = [image if isinstance(image, str) else digest(image) for image in images]
    asked = json.dumps([shared.fingerprint(), sent])
    return hashlib.sha256(asked.encode()).hexdigest()
