"""One command per registered task, generated from its spec: ``aps restore``, ``aps guide``, ..."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from aps_cli import files
from aps_cli.compute import Backend, Files
from aps_cli.device import DEVICE
from aps_cli.fields import PICTURE, json_of, prompt_is_argument, spec_options
from aps_cli.sections import SectionedCommand
from aps_cli.several import KEPT, compute_all, report
from aps_client.models import save
from aps_core.imaging.provenance import check_suffix
from aps_core.priors import PriorSpec, TextPriorSpec
from aps_core.tasks import TaskSpec

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def task_command(spec: type[TaskSpec]) -> click.Command:
    """Builds the command of a task."""
    task = str(spec.model_fields["type"].default)
    # required pictures first
    pictures = sorted(spec.pictures, key=lambda name: not spec.pictures[name])

    def command(
        output: Path | None,
        force: bool,
        skip_done: bool,
        as_json: bool,
        server: str | None,
        api_key: str | None,
        device: str | None,
        max_pixels: int | None,
        **options: Any,
    ) -> None:
        past = f"{task}d" if task.endswith("e") else f"{task}ed"
        named = options.pop(pictures[0]) if pictures else [[Path(past)]]
        sources = [path for each in named for path in each]
        others = {name: options.pop(name) for name in pictures[1:]}
        targets = files.targets(sources, output, f".{past}.png" if pictures else ".png")
        if not _makes_text(spec):
            check_suffix(targets[0].suffix or ".png")
            files.check_own(targets) if skip_done else files.check_free(targets, force)
        backend = Backend(server, api_key, device, max_pixels)
        asked = {"type": task, **json_of(spec, options)}

        def compute(source: Path, target: Path) -> Files:
            given = {pictures[0]: source, **others} if pictures else {}
            return backend.compute(asked, given, target.suffix or ".png")

        if len(sources) == 1 and skip_done and files.is_done(targets[0]):
            click.echo(KEPT.format(targets[0]), err=True)
            return click.echo(targets[0])
        if len(sources) == 1:
            return _write(compute(sources[0], targets[0]), targets[0], as_json)
        outcomes = compute_all(
            sources, targets, compute, lambda found, path: _write(found, path, as_json), skip_done
        )
        report(outcomes, past, targets[0].parent, force)
        if any(each.state == "failed" for each in outcomes):
            raise click.exceptions.Exit(1)
        return None

    command.__doc__ = f"{spec.summary()}\n\n{_output_help(spec)}"
    decorated: Callable[..., Any] = command
    for option in reversed(
        [
            *_arguments(spec, pictures),
            spec_options(spec),
            *_common(bool(pictures), _makes_text(spec)),
        ]
    ):
        decorated = option(decorated)
    return click.command(task, cls=SectionedCommand)(decorated)


def _makes_text(spec: type[TaskSpec]) -> bool:
    return issubclass(PriorSpec.named(spec.model_fields["prior"].default), TextPriorSpec)


def _output_help(spec: type[TaskSpec]) -> str:
    if _makes_text(spec):
        return "Prints the answer; with --json, also settings, scores and timings."
    return (
        "Writes the picture and a JSON file with its settings, and prints the picture's path."
        + (
            " Several pictures, folders and patterns are computed one after another, and a contact"
            " sheet shows them before and after; - is standard input."
            if spec.pictures
            else ""
        )
    )


def _arguments(spec: type[TaskSpec], pictures: list[str]) -> list[Decorator]:
    """Positional arguments (first picture, prompt) and options for further pictures."""
    prompt: list[Decorator] = []
    if prompt_is_argument(spec):
        needed = spec.model_fields["prompt"].is_required()
        prompt.append(
            click.argument(
                "prompt", required=needed, default=None if needed else "", callback=_prompt
            )
        )
    if not pictures:
        return prompt
    helps = {
        "mask": "Mask picture of the same size, white = known.",
        "kernel": "Blur kernel as a small grey picture: the picture of a point of light.",
        "image": "Picture whose content is kept.",
        "whole": "Picture that PHOTO was cut from: what happened to it is read from all of it.",
    }
    rest = [click.option(f"--{name}", type=PICTURE, help=helps.get(name)) for name in pictures[1:]]
    return [
        click.argument(
            pictures[0],
            cls=files.Pictures,
            metavar={"image": "PHOTO"}.get(pictures[0], pictures[0].upper()) + "...",
            type=files.PictureFiles(),
            nargs=-1,
            required=True,
        ),
        *prompt,
        *rest,
    ]


def _prompt(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """A prompt; ``-`` reads standard input."""
    return sys.stdin.read().strip() if value == str(files.STDIO) else value


def _common(sized: bool, text: bool) -> list[Decorator]:
    limit = "Maximum pixels of the result; default: 512x512 on a CPU, 2048x2048 on a GPU."
    return [
        click.option("--device", type=DEVICE, help="Default: cuda if available."),
        click.option("--max-pixels", type=int, hidden=not sized, help=limit),
        click.option(
            "--server",
            metavar="URL",
            envvar="APS_SERVER",
            show_envvar=True,
            help="URL of the service that runs the job; default: run it on this machine.",
        ),
        click.option(
            "--api-key",
            metavar="KEY",
            envvar="APS_API_KEY",
            show_envvar=True,
            help="API key of that service.",
        ),
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print settings, seed, timings and files of the result as JSON.",
        ),
        *files.output_options(hidden=text),
        click.option(
            "--continue",
            "skip_done",
            is_flag=True,
            hidden=not sized,
            help="Continue an interrupted run: keep the results that exist, compute the others.",
        ),
    ]


def _write(found: Files, output: Path, as_json: bool) -> None:
    """Writes picture files and sidecar, or prints the answer. Notes go to stderr."""
    sidecar: dict[str, Any] = json.loads(found["result.json"])
    paths: list[Path] = []
    if output == files.STDIO and "answer" not in sidecar:
        files.write_out(found["result.png"])
        as_json = False  # standard output holds the picture
    elif "answer" not in sidecar:
        paths = save(found, output)
    if as_json:
        click.echo(json.dumps({"files": [str(path) for path in paths], **sidecar}, indent=1))
        return
    for path in paths:
        click.echo(path)
    for answer in _answers(sidecar):
        click.echo(answer["text"])
        click.echo(
            f"({'guided' if answer['guided'] else 'unguided'}, reward {answer['reward']:.3f})",
            err=True,
        )
    if sidecar.get("fit"):
        click.echo(sidecar["fit"]["text"], err=True)
    for note in sidecar["notes"]:
        click.echo(note, err=True)


def _answers(sidecar: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The best answer to every prompt, and the unguided one to a single prompt."""
    if best := sidecar.get("best_answers"):
        return list(best)
    return [sidecar[name] for name in ("answer", "unguided") if sidecar.get(name)]
