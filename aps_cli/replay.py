"""``aps replay``: repeats a job from its sidecar and compares the results."""

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
@click.option("--force", is_flag=True, help="Overwrite the files of an earlier replay.")
@click.pass_context
def replay(
    ctx: click.Context, sidecar: Path, pictures: tuple[Path, ...], out: Path, force: bool
) -> None:
    """Repeat the job of SIDECAR with its input PICTURES, given in any order, and compare the
    results.

    The exit code is 0 if all samples are bit-identical. Otherwise it is 1, and the command lists
    differences in device and software versions.
    """
    if (earlier := out / "result.json").exists() and not force:
        raise InvalidSpec(
            f"'{earlier}' exists; overwrite it with --force, or choose another --out."
        )
    record = _read(sidecar)
    spec, origin = validate_spec(record["spec"]), record["origin"]
    inputs = _matched(origin["inputs"], pictures)
    from aps_core.engines.engine import Engine  # loads torch, so it comes after the checks
    from aps_core.runtime.process import be_reproducible

    be_reproducible(origin["threads"])
    engine = Engine.load(spec.prior, origin["device"])
    with Display() as display:
        result = run(spec, inputs, engine, lambda progress: display.step(progress.event()))
    out.mkdir(parents=True, exist_ok=True)
    for file in result.files():
        (out / file.name).write_bytes(file.data)
        click.echo(out / file.name)
    (out / "result.json").write_text(json.dumps(result.sidecar(), indent=1) + "\n")
    if _compared(result) == {key: record[key] for key in _compared(result)}:
        click.echo("The results are identical bit for bit.", err=True)
        return
    changed = [
        f"{key} {origin[key]} then, {value} now"
        for key, value in result.origin.items()
        if origin.get(key) != value
    ]
    click.echo(
        "The results differ. Changes since then:"
        f" {'; '.join(changed) or 'none in what is recorded; the processor may differ'}.",
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
    """Assigns the pictures in ``paths`` to the job's inputs by the hash of their pixels."""
    given = {(picture := images.open_image(path.read_bytes())).digest(): picture for path in paths}
    missing = [name for name, digest in wanted.items() if digest not in given]
    if missing:
        raise InvalidSpec(
            f"The given pictures do not include the job's {' and '.join(missing)}; its pixels must"
            " be unchanged."
        )
    known = {field.name for field in fields(Inputs)}
    return Inputs(**{name: given[digest] for name, digest in wanted.items() if name in known})


def _compared(result: Result) -> dict[str, Any]:
    """Fields of the sidecar that are compared."""
    keys = ("samples_sha256",) if isinstance(result, PictureResult) else ("answer", "unguided")
    return {
        key: value for key, value in json.loads(json.dumps(result.sidecar())).items() if key in keys
    }
