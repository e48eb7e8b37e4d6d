"""One command for every registered task, made from its spec: ``aps restore``, ``aps generate``,
``aps guide``, ...
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from aps_cli.compute import Files, Where
from aps_cli.fields import PICTURE, Verb, json_of, prompt_is_argument, spec_options
from aps_client.models import save
from aps_core.priors import PriorSpec, TextPriorSpec
from aps_core.tasks import TaskSpec

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def verb(spec: type[TaskSpec]) -> click.Command:
    """The command of a task."""
    task = str(spec.model_fields["type"].default)
    # what is needed comes first
    pictures = sorted(spec.pictures, key=lambda name: not spec.pictures[name])

    def command(
        output: Path | None,
        as_json: bool,
        server: str | None,
        api_key: str | None,
        device: str | None,
        max_pixels: int | None,
        **options: Any,
    ) -> None:
        given = {name: options.pop(name) for name in pictures}
        first = next((path for path in given.values() if path is not None), None)
        past = f"{task}d" if task.endswith("e") else f"{task}ed"
        where = output or (first.with_suffix(f".{past}.png") if first else Path(f"{past}.png"))
        files = Where(server, api_key, device, max_pixels).compute(
            {"type": task, **json_of(spec, options)}, given, where.suffix
        )
        _write(files, where, as_json)

    command.__doc__ = f"{spec.summary()}\n\n{_writes(spec)}"
    decorated: Callable[..., Any] = command
    for option in reversed(
        [
            *_arguments(spec, pictures),
            spec_options(spec),
            *_common(bool(pictures), _makes_text(spec)),
        ]
    ):
        decorated = option(decorated)
    return click.command(task, cls=Verb)(decorated)


def _makes_text(spec: type[TaskSpec]) -> bool:
    return issubclass(PriorSpec.named(spec.model_fields["prior"].default), TextPriorSpec)


def _writes(spec: type[TaskSpec]) -> str:
    if _makes_text(spec):
        return "Prints the answer; with --json everything about it."
    return "Writes the picture, with its settings in a JSON file beside it, and prints its path."


def _arguments(spec: type[TaskSpec], pictures: list[str]) -> list[Decorator]:
    """What is given without a flag: the picture a task needs, and the prompt where it is about
    that; other pictures are options.
    """
    prompt: list[Decorator] = []
    if prompt_is_argument(spec):
        needed = spec.model_fields["prompt"].is_required()
        prompt.append(click.argument("prompt", required=needed, default=None if needed else ""))
    if not pictures:
        return prompt
    helps = {
        "mask": "Mask picture of the same size, white = known.",
        "image": "Picture whose content is kept.",
    }
    rest = [click.option(f"--{name}", type=PICTURE, help=helps.get(name)) for name in pictures[1:]]
    return [
        click.argument(
            pictures[0],
            metavar={"image": "PHOTO"}.get(pictures[0], pictures[0].upper()),
            type=PICTURE,
        ),
        *prompt,
        *rest,
    ]


def _common(sized: bool, text: bool) -> list[Decorator]:
    limit = "Largest result this device may make; default 512x512 on CPU, 2048x2048 on GPU."
    output = "Where the picture goes; default: named after the photo or the task."
    return [
        click.option(
            "--device", default=None, help="cpu or cuda; default: cuda where there is one."
        ),
        click.option("--max-pixels", type=int, hidden=not sized, help=limit),
        click.option(
            "--server",
            metavar="URL",
            envvar="APS_SERVER",
            show_envvar=True,
            help="A running service to compute it; default: compute here.",
        ),
        click.option(
            "--api-key",
            metavar="KEY",
            envvar="APS_API_KEY",
            show_envvar=True,
            help="Key for that service.",
        ),
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print everything about the result as JSON: settings, seed, seconds, files.",
        ),
        click.option("-o", "--output", type=click.Path(path_type=Path), hidden=text, help=output),
    ]


def _write(files: Files, output: Path, as_json: bool) -> None:
    """Writes pictures and sidecar, or prints the answer; notes go to stderr."""
    sidecar: dict[str, Any] = json.loads(files["result.json"])
    paths = save(files, output) if "answer" not in sidecar else []
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
    for note in sidecar["notes"]:
        click.echo(note, err=True)


def _answers(sidecar: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [sidecar[name] for name in ("answer", "unguided") if sidecar.get(name)]
