"""Entry point of ``aps``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from aps_cli.degrade import degrade
from aps_cli.device import DEVICE
from aps_cli.diagnose import diagnose
from aps_cli.doctor import doctor
from aps_cli.eval_text import eval_text
from aps_cli.evaluate import evaluate
from aps_cli.fields import PICTURE
from aps_cli.group import OneLineErrors
from aps_cli.jobs import jobs
from aps_cli.keys import keys
from aps_cli.operator_options import field_lines
from aps_cli.replay import replay
from aps_cli.task_commands import task_command
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
    """Restore and generate pictures and text with a discrete diffusion prior, without training per
    task.

    \b
    aps diagnose photo.jpg                                          say what is wrong with it
    aps restore photo.jpg --operator auto                           find out, and undo it
    aps restore blurred.jpg --operator gaussian_blur                compute locally
    aps restore blurred.jpg --operator gaussian_blur --server URL   use a running service
    aps serve --embedded                                            run service and studio
    aps doctor                                                      check the installation
    """
    prepare_environment()


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True)
@click.option(
    "--embedded/--no-embedded",
    default=False,
    help="Also start a Redis-compatible server and a worker on this machine.",
)
@click.option(
    "--device", type=DEVICE, help="Device of the embedded worker; default: cuda if available."
)
def serve(host: str, port: int, embedded: bool, device: str | None) -> None:
    """Run the HTTP service; with --embedded, everything it needs on this machine."""
    from aps_cli import processes

    processes.serve(host, port, embedded, device)


@main.command()
@click.option("--device", type=DEVICE, help="Default: cuda if available.")
def worker(device: str | None) -> None:
    """Run one worker per visible GPU (see CUDA_VISIBLE_DEVICES), or one on the CPU. A worker keeps
    its priors in memory.
    """
    from aps_cli import processes

    processes.worker(device)


@main.command()
def webhooks() -> None:
    """Run a separate webhook sender, for an API with APS_SEND_WEBHOOKS=false."""
    from aps_cli import processes

    processes.webhooks()


@main.command()
@click.argument("jobs", nargs=-1)
def requeue(jobs: tuple[str, ...]) -> None:
    """Queue dead-lettered JOBS again; without JOBS, list them."""
    from aps_cli import requeue as command

    command.requeue(jobs) if jobs else command.show_dead_letters()


@main.command()
@click.argument("photo", type=PICTURE)
@click.argument("page", type=PICTURE)
@click.option("--once", is_flag=True, help="Exit after the jobs instead of serving the studio.")
@click.option(
    "-o",
    "--out",
    type=FOLDER,
    default=Path("demo-output"),
    show_default=True,
    help="Folder for the pictures.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the service; 0 selects a free one.",
)
def demo(photo: Path, page: Path, once: bool, out: Path, port: int) -> None:
    """Start a service on this machine, degrade a PHOTO and a PAGE, restore them and write all
    pictures.
    """
    from aps_cli import processes

    processes.demo(photo, page, out, once, port)


@main.command()
@click.option(
    "--json", "as_json", is_flag=True, help="Print everything as JSON, with JSON Schemas."
)
@click.option("--markdown", is_flag=True, help="Print the operators as a Markdown table.")
def capabilities(as_json: bool, markdown: bool) -> None:
    """List the members of every family, with the fields of operators."""
    from aps_core.capabilities import describe, operator_table

    if markdown:
        click.echo(operator_table())
        return
    known = describe()
    if as_json:
        click.echo(json.dumps(known, indent=2))
        return
    for title, members in known.items():
        if title == "version":
            continue
        click.echo(f"{title.replace('_', ' ')}:")
        for item in members:
            name = item.get("type", item.get("name"))
            click.echo(f"  {name:<18} {item['summary']}")
            if item.get("missing"):
                click.echo(f"      not installed: {item['missing']}")
            elif item.get("lacking"):
                click.echo(f"      optional: {item['lacking']}")
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
@click.option("--device", type=DEVICE, help="Default: cuda if available.")
@click.option(
    "--weights-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of checkpoints; overrides APS_WEIGHTS_DIR.",
)
@click.option(
    "--size",
    type=click.IntRange(min=64),
    help="Side length of the pictures in pixels; default: the native size of the prior.",
)
@click.option("--steps", type=int, help="Reverse steps; default: as the prior recommends.")
@click.option("--inner-steps", type=int, help="Inner steps; default: as the prior recommends.")
@click.option("--prompt", default="a cup of coffee on a wooden table", show_default=True)
@click.option(
    "--no-quality",
    is_flag=True,
    help="Check only that everything runs, not the quality of results; for random weights.",
)
@click.option("--threads", type=int, help="CPU threads.")
@click.option("-o", "--out", type=FOLDER, help="Folder for the resulting pictures.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per check.")
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
    """Check that PRIOR works on this machine: load it, encode and decode a picture, generate one
    from text, restore one; print time and memory. The exit code is 1 if a check fails.
    """
    from aps_cli.checks import Options
    from aps_cli.verify import run_checks

    options = Options(
        prompt=prompt,
        size=size,
        settings={name: value for name, value in settings.items() if value is not None},
        quality=not no_quality,
        out=out,
    )
    if not run_checks(prior, device, weights_dir, options, threads, as_json):
        raise click.exceptions.Exit(1)


for command in (
    degrade,
    diagnose,
    doctor,
    evaluate,
    eval_text,
    jobs,
    keys,
    replay,
    weights,
    *(task_command(TaskSpec.named(name)) for name in sorted(TaskSpec.family)),
):
    main.add_command(command)


if __name__ == "__main__":
    main()
