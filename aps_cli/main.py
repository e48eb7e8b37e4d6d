"""Entry point of ``aps``: its commands."""

from __future__ import annotations

import json
from pathlib import Path

import click

from aps_cli.degrade import degrade
from aps_cli.doctor import doctor
from aps_cli.eval_text import eval_text
from aps_cli.evaluate import evaluate
from aps_cli.fields import PICTURE, field_lines
from aps_cli.group import OneLineErrors
from aps_cli.jobs import jobs
from aps_cli.keys import keys
from aps_cli.replay import replay
from aps_cli.verbs import verb
from aps_cli.weights import weights
from aps_core import __version__
from aps_core.runtime.process import prepare_environment
from aps_core.tasks import TaskSpec

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group(
    cls=OneLineErrors,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__)
def main() -> None:
    """Restore, draw and write with a discrete diffusion prior, and no training per task.

    \b
    aps restore blurred.jpg --operator gaussian_blur                compute here
    aps restore blurred.jpg --operator gaussian_blur --server URL   or by a running service
    aps serve --embedded                                            run that service, studio
    included aps doctor                                                      is everything there?
    """
    prepare_environment()


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8000, show_default=True)
@click.option(
    "--embedded/--no-embedded",
    default=False,
    help="Also start a Redis-compatible server and a worker here.",
)
@click.option("--device", default=None, help="Device of the embedded worker: cpu or cuda.")
def serve(host: str, port: int, embedded: bool, device: str | None) -> None:
    """Run the HTTP service (with --embedded: server, worker and all, on this machine)."""
    from aps_cli import processes

    processes.serve(host, port, embedded, device)


@main.command()
@click.option("--device", default=None, help="cpu or cuda; default: cuda where there is one.")
def worker(device: str | None) -> None:
    """Run workers with the prior resident: one on each GPU (CUDA_VISIBLE_DEVICES chooses), or one
    on the CPU.
    """
    from aps_cli import processes

    processes.worker(device)


@main.command()
def webhooks() -> None:
    """Run a process that sends webhooks, where the API shall not (APS_SEND_WEBHOOKS=false)."""
    from aps_cli import processes

    processes.webhooks()


@main.command()
@click.argument("jobs", nargs=-1)
def requeue(jobs: tuple[str, ...]) -> None:
    """Give JOBS that were given up another life; without JOBS, list them."""
    from aps_cli import requeue as command

    command.requeue(jobs) if jobs else command.show_dead()


@main.command()
@click.argument("photo", type=PICTURE)
@click.option("--once", is_flag=True, help="Exit after the job instead of serving the studio.")
@click.option(
    "-o",
    "--out",
    type=FOLDER,
    default=Path("demo-output"),
    show_default=True,
    help="Where the pictures go.",
)
@click.option("--port", default=0, help="Port of the service; default: a free one.")
def demo(photo: Path, once: bool, out: Path, port: int) -> None:
    """Degrade PHOTO, restore it through a service started here, and show before and after."""
    from aps_cli import processes

    processes.demo(photo, out, once, port)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="The whole description with JSON Schemas.")
@click.option("--markdown", is_flag=True, help="The operators as a Markdown table.")
def capabilities(as_json: bool, markdown: bool) -> None:
    """Show tasks, operators with their fields, and priors."""
    from aps_core.capabilities import describe, operator_table

    if markdown:
        click.echo(operator_table())
        return
    known = describe()
    if as_json:
        click.echo(json.dumps(known, indent=2))
        return
    for title in ("tasks", "operators", "samplers", "losses", "priors"):
        click.echo(f"{title}:")
        for item in known[title]:
            name = item.get("type", item.get("name"))
            click.echo(f"  {name:<18} {item['summary']}")
            if item.get("missing"):
                click.echo(f"      not here: {item['missing']}")
            if item.get("recommended"):
                sampler = item["recommended"]["sampler"]
                told = ", ".join(
                    f"{key}={value}" for key, value in sampler.get("aps", sampler).items()
                )
                click.echo(f"      recommended: {told}")
            if title == "operators":
                click.echo("".join(f"      {line}\n" for line in field_lines(name)), nl=False)


@main.command()
@click.argument("prior")
@click.option("--device", default=None, help="cpu or cuda; default: cuda where there is one.")
@click.option(
    "--weights-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of checkpoints, in place of APS_WEIGHTS_DIR.",
)
@click.option(
    "--size",
    type=click.IntRange(min=64),
    help="Side of the pictures in pixels; default: the size the prior was trained at.",
)
@click.option("--steps", type=int, help="Reverse steps; default: the prior's own setting.")
@click.option("--inner-steps", type=int, help="Inner steps; default: the prior's own setting.")
@click.option("--prompt", default="a cup of coffee on a wooden table", show_default=True)
@click.option(
    "--no-quality",
    is_flag=True,
    help="For random weights: everything must run, whatever comes out.",
)
@click.option("--threads", type=int, help="CPU threads.")
@click.option("-o", "--out", type=FOLDER, help="Folder for the pictures that were made.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a check.")
def verify(
    prior: str,
    device: str | None,
    weights_dir: Path | None,
    prompt: str,
    size: int | None,
    no_quality: bool,
    threads: int | None,
    out: Path | None,
    as_json: bool,
    **settings: int | None,
) -> None:
    """Show that PRIOR works here: load, round trip, text to image, super-resolution, with time and
    memory. Exit code 1 if a check fails.
    """
    from aps_cli import verify as checks

    options = checks.Options(
        prompt,
        size,
        {name: value for name, value in settings.items() if value is not None},
        not no_quality,
        out,
    )
    if not checks.command(prior, device, weights_dir, options, threads, as_json):
        raise click.exceptions.Exit(1)


for command in (
    degrade,
    doctor,
    evaluate,
    eval_text,
    jobs,
    keys,
    replay,
    weights,
    *(verb(TaskSpec.named(name)) for name in sorted(TaskSpec.family)),
):
    main.add_command(command)


if __name__ == "__main__":
    main()
