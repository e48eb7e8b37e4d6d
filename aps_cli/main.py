"""Entry point of ``aps``: commands, one-line errors, exit codes.

Exit codes: 0 done, 1 the work failed or a service cannot take it now, 2 wrong usage or input or missing weights,
78 a worker cannot start with its settings (unknown priors, missing weights, too little memory).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from aps_cli.edit import edit
from aps_cli.eval_text import eval_text
from aps_cli.fields import config_from, field_lines, operator_from, spec_options
from aps_cli.generate import generate
from aps_cli.guide import guide
from aps_cli.replay import replay
from aps_cli.stylize import stylize
from aps_cli.weights import weights
from aps_core import __version__
from aps_core.errors import APSError, ImageRejected, InvalidSpec, WeightsMissing

PICTURE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


class OneLineErrors(click.Group):
    """Turns the library's errors into one line on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """See :meth:`click.Group.invoke`."""
        try:
            return super().invoke(ctx)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"] if part != "constrained-float")
            click.echo(f"aps: {where}: {first['msg']}", err=True)
            ctx.exit(2)
        except APSError as error:
            click.echo(f"aps: {error}", err=True)
            ctx.exit(2 if isinstance(error, InvalidSpec | ImageRejected | WeightsMissing) else 1)


@click.group(cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__)
def main() -> None:
    """Restore images with a discrete diffusion prior and no training per task."""


@main.command()
@click.argument("photo", type=PICTURE)
@spec_options
@click.option("--sigma", default="auto", show_default=True, help="Noise standard deviation on the [-1, 1] scale, or 'auto'.")
@click.option("--noise", type=click.Choice(["gaussian", "poisson"]), default="gaussian", show_default=True, help="Noise model of the measurement.")
@click.option("--peak", default=100.0, show_default=True, help="Photons a white value counts (poisson).")
@click.option("--mask", type=PICTURE, help="Mask picture, white = known (inpainting with --mask-source upload).")
@click.option("--prompt", default="", help="Text describing the picture.")
@click.option("--seed", default=0, show_default=True, help="Seed of every random draw.")
@click.option("--num-samples", default=1, show_default=True, help="Posterior samples to draw.")
@click.option("--working-size", type=int, help="Reduce the photo so that the result's longer side is at most this many pixels.")
@click.option("--prior", default="embedded", show_default=True, help="Which prior to sample from.")
@click.option("--device", default=None, help="cpu or cuda; default: cuda where there is one.")
@click.option("--max-pixels", type=int, help="Largest result this device may make; default 512x512 on CPU, 2048x2048 on GPU.")
@click.option("--server", help="URL of a running service; default: compute here.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Result picture; default PHOTO.restored.png.")
def restore(photo: Path, output: Path | None, server: str | None, mask: Path | None, device: str | None, max_pixels: int | None, **options: Any) -> None:
    """Restore a degraded PHOTO; writes the picture and a JSON sidecar with all settings."""
    from aps_cli import restore as commands

    sigma = options.pop("sigma")
    spec = {
        "type": "restore",
        "operator": operator_from(options),
        "sampler": config_from(options),
        "sigma": sigma if sigma == "auto" else _number("sigma", sigma),
        **{name: options[name] for name in ("prompt", "seed", "noise", "peak", "num_samples", "working_size", "prior")},
    }
    output = output or photo.with_suffix(".restored.png")
    if server:
        commands.compute_remote(server, spec, {"image": photo, "mask": mask}, output)
    else:
        commands.compute_here(spec, {"image": photo, "mask": mask}, output, device, max_pixels)


@main.command()
@click.argument("photo", type=PICTURE)
@spec_options
@click.option("--noise", type=click.Choice(["gaussian", "poisson"]), default="gaussian", show_default=True, help="Noise to add.")
@click.option("--peak", default=100.0, show_default=True, help="Photons a white value counts (poisson).")
@click.option("--sigma", type=float, help="Noise standard deviation on the [-1, 1] scale; default: 0.05, beside poisson 0.")
@click.option("--seed", default=0, show_default=True, help="Seed of the noise.")
@click.option("--mask", type=PICTURE, help="Mask picture, white = known.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Result picture; default PHOTO.degraded.png.")
def degrade(photo: Path, output: Path | None, noise: str, peak: float, sigma: float | None, seed: int, mask: Path | None, **options: Any) -> None:
    """Degrade a clean PHOTO with an operator and noise, to try a restoration on."""
    from aps_cli import restore as commands

    photons = peak if noise == "poisson" else None
    sigma = sigma if sigma is not None else 0.0 if photons else 0.05
    commands.degrade(photo, operator_from(options), sigma, photons, seed, mask, output or photo.with_suffix(".degraded.png"))


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8000, show_default=True)
@click.option("--embedded/--no-embedded", default=False, help="Also start a Redis-compatible server and a worker here.")
@click.option("--device", default=None, help="Device of the embedded worker: cpu or cuda.")
def serve(host: str, port: int, embedded: bool, device: str | None) -> None:
    """Run the HTTP service (with --embedded: server, worker and all, on this machine)."""
    from aps_cli import processes

    processes.serve(host, port, embedded, device)


@main.command()
@click.option("--device", default=None, help="cpu or cuda; default: cuda where there is one.")
def worker(device: str | None) -> None:
    """Run one worker process: one device, the prior resident."""
    from aps_cli import processes

    processes.worker(device)


@main.command()
@click.argument("photo", type=PICTURE)
@click.option("--once", is_flag=True, help="Exit after the job instead of serving the studio.")
@click.option("-o", "--out", type=FOLDER, default=Path("demo-output"), show_default=True, help="Where the pictures go.")
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
    for title in ("tasks", "operators", "priors"):
        click.echo(f"{title}:")
        for item in known[title]:
            name = item.get("type", item.get("name"))
            click.echo(f"  {name:<18} {item['summary']}")
            if item.get("missing"):
                click.echo(f"      not here: {item['missing']}")
            if title == "operators":
                click.echo("".join(f"      {line}\n" for line in field_lines(name)), nl=False)


@main.command("eval")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "-o", "--out", type=FOLDER, default=Path("eval-output"), show_default=True, help="Where tables and pictures go; an earlier run there is continued."
)
@click.option("--task", "tasks", multiple=True, help="Only these tasks (may repeat).")
@click.option("--method", "methods", multiple=True, help="Only these methods (may repeat).")
@click.option("--protocol", "protocols", multiple=True, default=["native"], show_default=True, help="native or upsampled (may repeat).")
@click.option("--samples", default=1, show_default=True, help="Also the mean of this many APS samples.")
@click.option("--limit", type=int, help="Only the first so many photographs.")
@click.option("--sigma", default=0.05, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--prior", default="embedded", show_default=True)
@click.option("--device", default=None, help="cpu or cuda; default: cuda where there is one.")
@click.option("--threads", type=int, help="CPU threads.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Sampler settings, for instance --set inner_steps=40; of one method, --set g2d2.learning_rate=3.",
)
def evaluate(
    folder: Path, out: Path, tasks: tuple[str, ...], methods: tuple[str, ...], protocols: tuple[str, ...], settings: tuple[str, ...], **options: Any
) -> None:
    """Degrade and restore every clean photograph of FOLDER; writes per-image CSV, means and a contact sheet."""
    from aps_cli import evaluate as command

    command.run(folder, out, tasks, methods, protocols, settings, **options)


@main.command()
@click.argument("prior")
@click.option("--device", default=None, help="cpu or cuda; default: cuda where there is one.")
@click.option("--weights-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder of checkpoints, in place of APS_WEIGHTS_DIR.")
@click.option("--size", type=click.IntRange(min=64), help="Side of the pictures in pixels; default: the size the prior was trained at.")
@click.option("--steps", type=int, help="Reverse steps; default: the prior's own setting.")
@click.option("--inner-steps", type=int, help="Inner steps; default: the prior's own setting.")
@click.option("--prompt", default="a cup of coffee on a wooden table", show_default=True)
@click.option("--no-quality", is_flag=True, help="For random weights: everything must run, whatever comes out.")
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
    """Show that PRIOR works here: load, round trip, text to image, super-resolution, with time and memory. Exit code 1 if a check fails."""
    from aps_cli import verify as checks

    options = checks.Options(prompt, size, {name: value for name, value in settings.items() if value is not None}, not no_quality, out)
    if not checks.command(prior, device, weights_dir, options, threads, as_json):
        raise click.exceptions.Exit(1)


for command in (edit, stylize, generate, guide, eval_text, weights, replay):
    main.add_command(command)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidSpec(f"--{name} must be a number or 'auto', not {text!r}.") from None


if __name__ == "__main__":
    main()
