"""``aps requeue``: lists dead-lettered jobs and queues them again."""

from __future__ import annotations

import click

from aps_core.errors import InvalidSpec
from service.dispatch.notifier import JobNotifier
from service.jobs import open_store
from service.settings import Settings


def show_dead_letters() -> None:
    """Prints id, prior, attempts and end time of each dead-lettered job."""
    store, _ = open_store(Settings())
    for job in store.dead():
        click.echo(
            f"{job.id}  {job.prior}  {job.attempt} attempts  {job.finished_at:%Y-%m-%d %H:%M:%S}Z"
        )


def requeue(job_ids: tuple[str, ...]) -> None:
    """Queues dead-lettered jobs again.

    Raises:
        InvalidSpec: a job is not dead-lettered or no longer exists.
    """
    settings = Settings()
    store, _ = open_store(settings)
    notifier = JobNotifier(settings)
    try:
        for job_id in job_ids:
            outcome = store.requeue(job_id)
            job = store.get(job_id)
            if outcome != "queued" or job is None:
                raise InvalidSpec(
                    f"Job '{job_id}' cannot be requeued: it is {outcome}. 'aps requeue' without"
                    " arguments lists the dead-lettered jobs."
                )
            notifier.notify(job)
            click.echo(f"{job_id} queued")
    finally:
        notifier.close()
