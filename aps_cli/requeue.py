"""``aps requeue``: jobs that were given up, and another life for them."""

from __future__ import annotations

import click

from aps_core.errors import InvalidSpec
from service.dispatch.bell import Bell
from service.jobs import open_store
from service.settings import Settings


def show_dead() -> None:
    """Lists the jobs that were given up, one a line: id, prior, attempts, since when."""
    store, _ = open_store(Settings())
    for job in store.dead():
        click.echo(
            f"{job.id}  {job.prior}  {job.attempt} attempts  {job.finished_at:%Y-%m-%d %H:%M:%S}Z"
        )


def requeue(job_ids: tuple[str, ...]) -> None:
    """Puts given-up jobs back into the queue.

    Raises:
        InvalidSpec: one of them was not given up, or is no longer there.
    """
    settings = Settings()
    store, _ = open_store(settings)
    bell = Bell(settings)
    try:
        for job_id in job_ids:
            outcome = store.requeue(job_id)
            job = store.get(job_id)
            if outcome != "queued" or job is None:
                raise InvalidSpec(
                    f"Job '{job_id}' cannot be queued again: it is {outcome}. 'aps requeue' alone"
                    " lists those that can."
                )
            bell.ring(job)
            click.echo(f"{job_id} queued")
    finally:
        bell.close()
