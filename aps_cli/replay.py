"""``aps replay``: makes a result again from its sidecar and says whether it is the same."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from aps_cli.display import Display
from aps_core.errors import InvalidSpec
from aps_core.imaging import images
from aps_core.tasks import Inputs, PictureResult, Result, run, validate_spec

DIFFERS = 1


@click.command()
@click.argument("sidecar", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("pictures", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="replay",
    show_default=True,
    help="Folder for the files.",
)
@click.pass_context
def replay(ctx: click.Context, sidecar: Path, pictures: tuple[Path, ...], out: Path) -> None:
    """Make the result of SIDECAR again from its input PICTURES, in any order; they are told apart
    by their content.

    The exit code is 0 where every sample is the same bit for bit, else 1, and what differs between
    the two places is named.
    """
    from aps_core.runtime.engine import Engine
    from aps_core.runtime.process import be_reproducible

    record = _read(sidecar)
    spec, origin = validate_spec(record["spec"]), record["origin"]
    inputs = _matched(origin["inputs"], pictures)
    be_reproducible(origin["threads"])
    engine = Engine.load(spec.prior, origin["device"])
    with Display() as display:
        result = run(spec, inputs, engine, lambda progress: display.step(progress.event()))
    out.mkdir(parents=True, exist_ok=True)
    for file in result.files():
        (out / file.name).write_bytes(file.data)
        click.echo(out / file.name)
    (out / "result.json").write_text(json.dumps(result.sidecar(), indent=1) + "\n")
    if _made(result) == {key: record[key] for key in _made(result)}:
        click.echo("The same, bit for bit.", err=True)
        return
    changed = [
        f"{key} {origin[key]} there, {value} here"
        for key, value in result.origin.items()
        if origin.get(key) != value
    ]
    click.echo(
        "Not the same. Different:"
        f" {'; '.join(changed) or 'nothing that is recorded; the processor may be another'}.",
        err=True,
    )
    ctx.exit(DIFFERS)


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text())
    except ValueError as error:
        raise InvalidSpec(f"{path} is not a sidecar: {error}") from error
    missing = {"spec", "origin"} - set(record) if isinstance(record, dict) else {"spec", "origin"}
    if missing:
        raise InvalidSpec(f"{path} is not a sidecar; it lacks {', '.join(sorted(missing))}.")
    return record  # type: ignore[no-any-return]


def _matched(wanted: dict[str, str], paths: tuple[Path, ...]) -> Inputs:
    """The job's pictures, found among ``paths`` by the hash of their pixels."""
    given = {(picture := images.open_image(path.read_bytes())).digest(): picture for path in paths}
    missing = [name for name, digest in wanted.items() if digest not in given]
    if missing:
        raise InvalidSpec(
            f"The job's {' and '.join(missing)} is not among the pictures given; its pixels must be"
            " the same as then."
        )
    known = {field.name for field in fields(Inputs)}
    return Inputs(**{name: given[digest] for name, digest in wanted.items() if name in known})


def _made(result: Result) -> dict[str, Any]:
    """What must be equal, as it stands in the sidecar."""
    keys = ("samples_sha256",) if isinstance(result, PictureResult) else ("answer", "unguided")
    return {
        key: value for key, value in json.loads(json.dumps(result.sidecar())).items() if key in keys
    }
