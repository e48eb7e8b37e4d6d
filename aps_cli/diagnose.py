"""``aps diagnose``: what seems to have happened to pictures, and how to restore them."""

from __future__ import annotations

import json
import math
import shlex
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click

from aps_cli.device import default_device, max_pixels
from aps_cli.files import STDIO, PictureFiles, read
from aps_cli.jobs import connected
from aps_cli.naming import NamingCommand
from aps_cli.operator_options import words_of
from aps_client.errors import InvalidRequest
from aps_core.errors import ImageRejected
from aps_core.identify.diagnosis import Diagnosis
from aps_core.identify.diagnosis import diagnose as diagnose_locally
from aps_core.tasks import validate_spec
from aps_core.tasks.content import specialised
from aps_core.tasks.estimate import CPU_MAX_PIXELS, fitting_side


@click.command(cls=NamingCommand)
@click.argument("photos", metavar="PHOTO...", nargs=-1, required=True, type=PictureFiles())
@partial(connected, default="diagnose on this machine")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per picture.")
def diagnose(
    photos: tuple[list[Path], ...], server: str | None, api_key: str | None, as_json: bool
) -> None:
    """Say what is wrong with each PHOTO, how sure that is, and how to restore it.

    Folders and patterns are read too; - is standard input. A picture that cannot be read does not
    stop the others.
    """
    unread = 0
    for photo in chain.from_iterable(photos):
        try:
            found = _diagnosed(photo, server, api_key)
        except (ImageRejected, InvalidRequest) as error:
            click.echo(f"{photo}: {error}", err=True)
            unread += 1
            continue
        if as_json:
            click.echo(json.dumps({"picture": str(photo), **found.model_dump(mode="json")}))
            continue
        about = [each.sentence() for each in found.findings if each.kind in ("content", "size")]
        click.echo(f"{photo}: {'; '.join(about)}")
        click.echo(f"  {found.summary}")
        for note in found.unsure:
            click.echo(f"  Not certain: {note}")
        if found.proposal is not None:
            proposal = _fitting(found.proposal, (found.width, found.height))
            click.echo(f"  Try: {restore_command(photo, proposal)}")
    if unread:
        raise click.exceptions.Exit(2)


def _diagnosed(photo: Path, server: str | None, api_key: str | None) -> Diagnosis:
    data = read(photo)
    if server is None:
        found = diagnose_locally(data)
        return found.proposing(specialised(found.shows_document, found.proposal or {}))
    from aps_client import Client

    with Client(server, api_key) as client:
        return client.diagnose(data)


def _fitting(proposal: dict[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """The proposal, with a working size if this machine would refuse the picture as too large."""
    spec = validate_spec({"type": "restore", **proposal})
    area = math.prod(spec.sampled_size(size) or size)
    # choosing the device loads torch
    if area <= CPU_MAX_PIXELS or area <= (limit := max_pixels(default_device(None))):
        return proposal
    return {**proposal, "working_size": fitting_side(spec, size, limit)}


def restore_command(photo: Path, proposal: dict[str, Any]) -> str:
    """The command that runs a proposed restore job."""
    looks_like_option = photo != STDIO and str(photo).startswith("-")
    name = f"./{photo}" if looks_like_option else str(photo)
    words = ["aps", "restore", name, *words_of(proposal["operator"])]
    for field in ("noise", "peak", "working_size", "prior"):
        if field in proposal:
            words += [f"--{field.replace('_', '-')}", str(proposal[field])]
    return shlex.join(words)
