"""The public view of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aps_contract import BatchPicture, BatchView, PictureState
from service.jobs import Batch, Entry, Job


def view_batch(batch: Batch, jobs: Sequence[Job | None]) -> BatchView:
    """The public view of ``batch``; ``jobs`` are the records of ``batch.jobs``, None if gone."""
    found = {job.id: job for job in jobs if job is not None}
    pictures = [
        _picture(number, entry, found.get(entry.job or ""))
        for number, entry in enumerate(batch.entries, 1)
    ]
    base = f"/v1/batches/{batch.id}"
    return BatchView(
        id=batch.id,
        created_at=batch.created_at,
        finished=all(job.state.terminal for job in found.values()),
        progress=sum(_done(each) for each in pictures) / len(pictures),
        counts=dict(Counter(each.state for each in pictures)),
        pictures=pictures,
        urls={"self": base, "cancel": f"{base}/cancel", "results": f"{base}/results.zip"},
    )


def _picture(number: int, entry: Entry, job: Job | None) -> BatchPicture:
    if job is None:
        state = PictureState.REFUSED if entry.job is None else PictureState.DELETED
        return BatchPicture(
            number=number, state=state, job=entry.job, progress=None, error=entry.error, urls={}
        )
    base = f"/v1/jobs/{job.id}"
    result = job.artifact("result.png")
    return BatchPicture(
        number=number,
        state=PictureState(job.state),
        job=job.id,
        progress=job.progress,
        error=job.error,
        urls={"job": base, **({"result": f"{base}/artifacts/{result.name}"} if result else {})},
    )


def _done(picture: BatchPicture) -> float:
    """Share of a picture's work that is done: 1 for one that needs no more."""
    if picture.state is PictureState.QUEUED:
        return 0.0
    if picture.state is not PictureState.RUNNING:
        return 1.0
    return picture.progress.step / picture.progress.total if picture.progress else 0.0
