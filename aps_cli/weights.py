"""``aps weights``: lists, checks and downloads checkpoints.

Nothing else in the project downloads files, and this only on request.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, ClassVar

import click
from rich.console import Console
from rich.table import Table

from aps_core.checkpoints import checkpoint_cache, manifest
from aps_core.errors import APSError, InvalidSpec, WeightsInvalid, WeightsMissing


class FetchFailed(APSError):
    """The hub is unreachable, refused the request, or does not have the checkpoint."""

    code = "fetch_failed"
    title = "The weights could not be downloaded"
    retryable: ClassVar[bool] = True


@click.group()
def weights() -> None:
    """List, check and download checkpoints in APS_WEIGHTS_DIR (default: aps/weights in the user's
    cache folder).
    """


@weights.command("list")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the manifest and the local state as JSON."
)
def list_(as_json: bool) -> None:
    """List all checkpoints with state, size, licence and the features that need them."""
    states = {name: checkpoint_cache.check(name) for name in manifest.CHECKPOINTS}
    if as_json:
        click.echo(
            json.dumps(
                [_described(entry, states[name]) for name, entry in manifest.CHECKPOINTS.items()],
                indent=1,
            )
        )
        return
    table = Table(box=None, pad_edge=False)
    for title in ("name", "state", "size", "licence", "needed by"):
        table.add_column(title, overflow="fold", no_wrap=title == "name")
    for name, entry in manifest.CHECKPOINTS.items():
        about = "" if entry.bytes_known else "about "
        table.add_row(
            name,
            states[name].state,
            f"{about}{_size(entry.bytes)}",
            entry.licence,
            ", ".join(entry.needed_by),
        )
    Console().print(table)
    click.echo(f"Folder: {checkpoint_cache.root()}")


@weights.command()
@click.argument("names", nargs=-1)
@click.option(
    "--hashes", is_flag=True, help="Also verify the published SHA-256 sums; reads all files."
)
@click.option("--json", "as_json", is_flag=True)
def check(names: tuple[str, ...], hashes: bool, as_json: bool) -> None:
    """Check that NAMES (default: all installed checkpoints) are complete. The exit code is 1 if one
    is not.
    """
    found = [checkpoint_cache.check(name, hashes) for name in names or manifest.CHECKPOINTS]
    found = [one for one in found if names or one.state != "missing"]
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], default=str, indent=1))
    for one in () if as_json else found:
        click.echo(f"{one.name}: {one.state}" + "".join(f"\n  {reason}" for reason in one.reasons))
    if any(one.state != "present" for one in found):
        raise click.exceptions.Exit(1)


@weights.command()
@click.argument("name")
def path(name: str) -> None:
    """Print the folder of the checkpoint NAME, even if it does not exist yet."""
    manifest.named(name)
    click.echo(checkpoint_cache.root() / name)


@weights.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--offline",
    is_flag=True,
    help="Do not use the network; fail if weights are missing. Same as HF_HUB_OFFLINE=1.",
)
def fetch(names: tuple[str, ...], offline: bool) -> None:
    """Download NAMES from the Hugging Face hub; resume interrupted downloads."""
    entries = [manifest.named(name) for name in names]
    offline = offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    for entry in entries:
        found = checkpoint_cache.check(entry.name)
        if found.state != "present":
            if offline:
                raise WeightsMissing(
                    f"Offline: '{entry.name}' is {found.state} in {found.folder} and cannot be"
                    f" downloaded ({_size(entry.bytes)})."
                )
            _fetch(entry, found.folder)
            found = checkpoint_cache.check(entry.name, hashes=True)
        if found.state != "present":
            raise WeightsMissing(
                f"'{entry.name}' is {found.state}: {found.reasons[0]}"
                + (f" It is published as pickles; run:\n{entry.convert}" if entry.convert else "")
            )
        click.echo(found.folder)


@weights.command()
@click.argument("name")
@click.argument(
    "pickled", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE"
)
@click.option("--part", default=".", help="Sub-folder of NAME that FILE belongs to.")
def convert(name: str, pickled: Path, part: str) -> None:
    """Write the tensors of FILE, a published PyTorch pickle, as safetensors where NAME belongs.

    FILE is read without running code from it.
    """
    import torch
    from safetensors.torch import save_file

    entry = manifest.named(name)
    if part not in entry.parts:
        raise InvalidSpec(f"'{name}' has no part '{part}'; known: {', '.join(entry.parts)}.")
    try:
        stored = torch.load(pickled, map_location="cpu", weights_only=True)
        tensors = {
            key: value.clone(memory_format=torch.contiguous_format) for key, value in stored.items()
        }
    except (UnpicklingError, RuntimeError, AttributeError, TypeError) as error:
        raise WeightsInvalid(
            f"{pickled} does not hold tensors by name: {str(error).splitlines()[0]}"
        ) from error
    # transformers and diffusers publish under these names; everything else is read as "model"
    stem = pickled.stem if pickled.stem == "diffusion_pytorch_model" else "model"
    target = checkpoint_cache.root() / name / part / f"{stem}.safetensors"
    target.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target)
    click.echo(target)


def _fetch(entry: manifest.Checkpoint, folder: Path) -> None:
    """Downloads a checkpoint from the hub, except pickles and code.

    Raises:
        FetchFailed: the disk is full, huggingface_hub is not installed, or the hub does not
            respond, refuses the request, or does not have the repository.
    """
    if entry.repo is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    downloaded = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    free = shutil.disk_usage(folder).free
    if not entry.convert and entry.bytes - downloaded > free:
        raise FetchFailed(
            f"'{entry.name}' needs {_size(entry.bytes)}, but only {_size(free)} are free in"
            f" {folder}; set {checkpoint_cache.WEIGHTS_DIR} to a folder on another disk."
        )
    try:
        import httpx
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise FetchFailed(
            "Downloading needs the package huggingface_hub: pip install '.[library]' in the"
            " source folder."
        ) from error
    click.echo(
        f"{entry.repo} ({entry.revision}), {_size(entry.bytes)}, licence {entry.licence}", err=True
    )
    try:
        snapshot_download(
            entry.repo,
            revision=entry.revision,
            local_dir=folder,
            allow_patterns=list(manifest.SAFE),
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, httpx.HTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise FetchFailed(
            f"'{entry.name}' could not be downloaded from {entry.repo}: {reason} Downloaded data"
            " is kept; run the command again to resume."
        ) from error


def _described(entry: manifest.Checkpoint, found: checkpoint_cache.Check) -> dict[str, Any]:
    return {
        **asdict(entry),
        "convert": entry.convert,
        "state": found.state,
        "folder": str(found.folder),
        "reasons": found.reasons,
    }


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
