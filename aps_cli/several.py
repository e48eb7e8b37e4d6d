"""Several pictures in one command: none stops the others, and a report ends the run."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

import click
from PIL import Image

from aps_cli import contact_sheet
from aps_cli.compute import Files
from aps_cli.files import STDIO, is_done
from aps_cli.naming import in_options
from aps_client.errors import JobFailed
from aps_client.writing import write_whole
from aps_core.errors import APSError, NothingToRestore
from aps_core.operators import OperatorSpec

Compute = Callable[[Path, Path], Files]
"""Computes the result files of a picture; also given the path of its result."""
KEPT = "{} of an earlier run is kept, whatever its settings."
VERDICTS = {
    "agrees": "in agreement with the picture",
    "undecided": "agreement undecided",
    "disagrees": "in disagreement with the picture",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one picture."""

    source: Path
    state: Literal["done", "left", "failed"]
    words: tuple[str, ...] = ()
    """What was undone, and the verdict; or why there is no result."""
    verdict: str = ""
    before: Image.Image | None = None
    after: Image.Image | None = None


def compute_all(
    sources: Sequence[Path],
    targets: Sequence[Path],
    compute: Compute,
    write: Callable[[Files, Path], None],
    skip_done: bool,
) -> list[Outcome]:
    """Computes and writes the result of every picture; failures are printed.

    Args:
        sources: the pictures.
        targets: path of each result.
        compute: computes one.
        write: writes result files.
        skip_done: whether results that exist are not computed again.
    """
    outcomes = []
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), 1):
        try:
            if skip_done and is_done(target):
                click.echo(KEPT.format(target), err=True)
                sidecar = target.with_suffix(".json").read_bytes()
                files = {"result.png": target.read_bytes(), "result.json": sidecar}
            else:
                click.echo(f"[{number}/{len(sources)}] {source}", err=True)
                files = dict(compute(source, target))
                write(files, target)
            outcomes.append(_done(source, files))
        except (APSError, OSError) as error:
            outcomes.append(_without_result(source, error))
    return outcomes


def report(outcomes: Sequence[Outcome], past: str, folder: Path, force: bool) -> None:
    """Writes contact sheets to ``folder`` and prints a summary to stderr.

    Args:
        outcomes: what became of every picture.
        past: what was done, for example 'restored'.
        folder: where the sheets go.
        force: whether sheets of an earlier run are overwritten; otherwise they are kept.

    Raises:
        NotWritten: a sheet cannot be written.
    """
    names = _names(folder, force)
    cells = [
        contact_sheet.Cell(each.source.name, each.words, each.before, each.after)
        for each in outcomes
    ]
    told = [
        {"picture": str(each.source), "state": each.state, "words": each.words} for each in outcomes
    ]
    click.echo(summary(outcomes, past), err=True)
    for sheet in contact_sheet.sheets(cells):
        path, png = next(names), io.BytesIO()
        sheet.save(png, "PNG")
        # a JSON file beside a picture tells a later run that it is no input
        beside = json.dumps({"pictures": told}, indent=1) + "\n"
        write_whole({path.with_suffix(".json"): beside.encode(), path: png.getvalue()})
        click.echo(f"Before and after: {path}", err=True)


def summary(outcomes: Sequence[Outcome], past: str) -> str:
    """One line: how many pictures have a result, were left as they are, and failed."""
    states = Counter(each.state for each in outcomes)
    verdicts = Counter(each.verdict for each in outcomes)
    told = [f"{verdicts[name]} {words}" for name, words in VERDICTS.items() if verdicts[name]]
    parts = [f"{states['done']} {past}" + (f" ({', '.join(told)})" if told else "")]
    if states["left"]:
        parts.append(f"{states['left']} left as {'it is' if states['left'] == 1 else 'they are'}")
    if states["failed"]:
        parts.append(f"{states['failed']} failed")
    return f"{len(outcomes)} pictures: {', '.join(parts)}."


def _done(source: Path, files: Files) -> Outcome:
    sidecar = json.loads(files["result.json"])
    verdict = (sidecar.get("fit") or {}).get("verdict", "")
    found = sidecar.get("found")
    operator = found and OperatorSpec.named(found["operator"]["type"]).model_validate(
        found["operator"]
    )
    words = [operator.words()] if operator else []
    picture = next(
        data for name, data in files.items() if name.startswith("result.") and name != "result.json"
    )
    return Outcome(
        source=source,
        state="done",
        words=(*words, *([VERDICTS[verdict]] if verdict else [])),
        verdict=verdict,
        before=None if source == STDIO else contact_sheet.thumbnail(source.read_bytes()),
        after=contact_sheet.thumbnail(picture),
    )


def _without_result(source: Path, error: APSError | OSError) -> Outcome:
    """The outcome of a picture that failed or needs nothing; prints why."""
    reason = str(error)
    if isinstance(error, JobFailed) and error.job.error is not None:
        reason = error.job.error.detail
    reason = in_options(reason, click.get_current_context())
    left = isinstance(error, APSError) and error.code == NothingToRestore.code
    click.echo(f"{source}: {'left as it is. ' if left else ''}{reason}", err=True)
    first = f"{reason.partition('. ')[0].rstrip('.')}."
    try:
        before = None if source == STDIO else contact_sheet.thumbnail(source.read_bytes())
    except (APSError, OSError):  # the picture cannot be read, which was the failure
        before = None
    words = ("left as it is", first) if left else ("failed", first)
    return Outcome(source, "left" if left else "failed", words, before=before)


def _names(folder: Path, force: bool) -> Iterator[Path]:
    """Paths of contact sheets; those of an earlier run are left out unless ``force``."""
    for number in count(1):
        path = folder / f"contact-sheet{f'-{number}' if number > 1 else ''}.png"
        if force or not path.exists():
            yield path
