"""``aps jobs``: manages the jobs of a running service through its API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import click

from aps_cli.naming import NamingCommand
from aps_cli.ranges import FiniteRange
from aps_client import Client
from aps_contract import JobState


def connected(
    command: Callable[..., Any], default: str = "http://127.0.0.1:8000"
) -> Callable[..., Any]:
    """Adds ``--server``, whose help names the ``default``, and ``--api-key``."""
    key = click.option(
        "--api-key", envvar="APS_API_KEY", show_envvar=True, help="API key of the service."
    )
    return click.option(
        "--server",
        envvar="APS_SERVER",
        show_envvar=True,
        help=f"URL of the service; default: {default}.",
    )(key(command))


class _Jobs(click.Group):
    command_class = NamingCommand


@click.group(cls=_Jobs)
def jobs() -> None:
    """List, show, fetch, share, cancel and delete the jobs of a running service."""


@jobs.command("list")
@connected
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(1), help="Number of jobs to show."
)
@click.option(
    "--state",
    multiple=True,
    type=click.Choice([state.value for state in JobState]),
    help="Only jobs in this state; may be repeated.",
)
@click.option(
    "--task", multiple=True, metavar="NAME", help="Only jobs of this task; may be repeated."
)
@click.option(
    "--since",
    type=click.DateTime(),
    help="Only jobs created at this time (UTC) or later, such as 2026-11-22T09:30:00.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_(
    server: str | None,
    api_key: str | None,
    limit: int,
    state: tuple[str, ...],
    task: tuple[str, ...],
    since: datetime | None,
    as_json: bool,
) -> None:
    """List the newest jobs."""
    after = since.replace(tzinfo=UTC) if since else None
    with Client(server, api_key) as client:
        wanted = client.jobs(min(limit, 100), state=state, task=task, created_after=after)
        found = list(islice(wanted, limit))
    if as_json:
        for job in found:
            click.echo(job.model_dump_json())
        return
    for job in found:
        step = f"{job.progress.step}/{job.progress.total}" if job.progress else ""
        created = f"{job.created_at:%Y-%m-%d %H:%M:%S}Z" if job.created_at else ""
        click.echo(f"{job.id}  {job.task:<10} {job.state:<10} {step:>8}  {created}")


@jobs.command()
@connected
@click.argument("job_id")
def show(server: str | None, api_key: str | None, job_id: str) -> None:
    """Print the job JOB_ID as JSON."""
    with Client(server, api_key) as client:
        click.echo(client.job(job_id).model_dump_json(indent=1))


@jobs.command()
@connected
@click.argument("job_id")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("result.png"),
    show_default=True,
    help="Path of the result picture.",
)
def fetch(server: str | None, api_key: str | None, job_id: str, output: Path) -> None:
    """Wait for the job JOB_ID and download its result."""
    with Client(server, api_key) as client:
        for path in client.result(job_id).save(output):
            click.echo(path)


@jobs.command()
@connected
@click.argument("job_id")
def cancel(server: str | None, api_key: str | None, job_id: str) -> None:
    """Cancel the job JOB_ID. A queued job ends at once, a running job within moments."""
    with Client(server, api_key) as client:
        click.echo(client.cancel(job_id).state)


@jobs.command()
@connected
@click.argument("job_id")
@click.option(
    "--hours",
    type=FiniteRange(1 / 60, 8760),
    help="Lifetime of the link; default: as long as the service allows.",
)
@click.option("--end", is_flag=True, help="End all links to this result instead.")
def share(
    server: str | None, api_key: str | None, job_id: str, hours: float | None, end: bool
) -> None:
    """Print a link to the result of the job JOB_ID, which opens it without an API key."""
    with Client(server, api_key) as client:
        if end:
            client.unshare(job_id)
            return
        link = client.share(job_id, 3600 * hours if hours else None)
        base = "" if "://" in link.url else client.connection.server.rstrip("/")
        click.echo(f"{base}{link.url}")
        click.echo(f"valid until {link.expires_at:%Y-%m-%d %H:%M}Z", err=True)


@jobs.command()
@connected
@click.argument("job_id")
def delete(server: str | None, api_key: str | None, job_id: str) -> None:
    """Delete the job JOB_ID and its files."""
    with Client(server, api_key) as client:
        client.delete(job_id)
