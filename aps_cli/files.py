"""Files of a command: folders and patterns as input, ``-`` for standard input and output, and no
silent overwriting.
"""

from __future__ import annotations

import glob
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from aps_client.writing import writing
from aps_core.errors import ImageRejected, InvalidSpec
from aps_core.imaging import images
from aps_core.imaging.images import Picture

STDIO = Path("-")
"""Standard input or output."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
"""Files of a folder that count as pictures."""
UNREAD = (".avif", ".bmp", ".gif", ".heic", ".heif", ".jp2", ".pdf", ".svg", ".tif", ".tiff")
"""Pictures of other formats, which are left out of a folder with a message."""
BESIDE = re.compile(r"(mean|spread|blur|sample-\d+)\.(png|webp|npy)")
"""Names of files that come beside a result, after its own name and a hyphen; see
:meth:`aps_core.tasks.results.PictureResult.files`.
"""


class PictureFile(click.Path):
    """Path of an existing file, or ``-``."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


class PictureFiles(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """Existing files as a list: a file, the pictures of a folder, those matching a pattern, or
    ``-``.
    """

    name = "pictures"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Completes paths."""
        return click.Path().shell_complete(ctx, param, incomplete)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[Path]:
        """Lists the files that ``value`` names."""
        path = Path(value)
        if path.is_dir():
            files = sorted(path.iterdir())
            if unread := [each.name for each in files if each.suffix.lower() in UNREAD]:
                click.echo(
                    f"Left out, because only PNG, JPEG and WebP are read: {', '.join(unread)}.",
                    err=True,
                )
            if folders := [each.name for each in files if each.is_dir()]:
                click.echo(f"Folders inside are not read: {', '.join(folders)}.", err=True)
            found = [each for each in files if each.suffix.lower() in SUFFIXES]
            # a second run would otherwise restore the results of the first
            inputs = [each for each in found if not each.with_suffix(".json").exists()]
            if not inputs:
                self.fail(f"The folder '{path}' contains no pictures.", param, ctx)
            return inputs
        if glob.has_magic(str(value)) and not path.exists():
            matching = sorted(Path(name) for name in glob.glob(str(value), recursive=True))
            if not matching:
                self.fail(f"No file matches '{value}'.", param, ctx)
            return matching
        if path != STDIO and not path.exists():
            self.fail(f"File '{value}' does not exist.", param, ctx)
        return [path]


class Pictures(click.Argument):
    """Pictures before a prompt: if there is one word and it is a file, the prompt is missing."""

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, click.core.ParameterSource]:
        """The words; click takes a single one for the prompt."""
        value, source = super().consume_value(ctx, opts)
        word = opts.get("prompt")
        if self.value_is_missing(value) and isinstance(word, str) and os.path.isfile(word):
            prompt = next(param for param in ctx.command.params if param.name == "prompt")
            raise click.MissingParameter(ctx=ctx, param=prompt)
        return value, source


def read(path: Path) -> bytes:
    """Contents of a file or of standard input."""
    return sys.stdin.buffer.read() if path == STDIO else path.read_bytes()


def opened(name: str, data: bytes) -> Picture:
    """Decodes the picture ``name`` of a job.

    Raises:
        ImageRejected: it cannot be read; the message names it as a service does.
    """
    try:
        return images.open_image(data)
    except ImageRejected as error:
        error.args = (f"'{name}': {error}",)
        raise


def write_out(data: bytes) -> None:
    """Writes a picture to standard output.

    Raises:
        NotWritten: it cannot be written to.
    """
    with writing("standard output"):
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except OSError:
            # the rest would fail again, with a traceback, when Python exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise


def targets(sources: Sequence[Path], output: Path | None, suffix: str) -> list[Path]:
    """Path of the result of each source; ``STDIO`` for standard output.

    Args:
        sources: input pictures, possibly ``STDIO``.
        output: value of ``--output``: a file, a folder, ``STDIO``, or None for a name beside the
            source.
        suffix: suffix of default names, such as ``.restored.png``.

    Raises:
        InvalidSpec: several results would go to one file.
        NotWritten: the folder cannot be made.
    """
    if output is None:
        return _named(sources, suffix)
    into = output.is_dir() or (len(sources) > 1 and not output.suffix and output != STDIO)
    if into:
        with writing(output):
            output.mkdir(parents=True, exist_ok=True)
        names = [Path("result" if path == STDIO else path.name) for path in sources]
        return [output / name for name in _named(names, suffix)]
    if len(sources) > 1:
        raise InvalidSpec(f"Several pictures need a folder as --output, not '{output}'.")
    return [output]


def _named(paths: Sequence[Path], suffix: str) -> list[Path]:
    """Each path with ``suffix`` in place of its own; if several then have the same name, behind
    it: ``a.jpg.png`` and ``a.png.png``.
    """
    short = [path if path == STDIO else path.with_suffix(suffix) for path in paths]
    times = Counter(short)
    return [
        path.with_name(path.name + suffix) if times[name] > 1 and path != STDIO else name
        for path, name in zip(paths, short, strict=True)
    ]


def is_done(target: Path) -> bool:
    """Whether a result is there, with its sidecar, and both can be read: others may have been cut
    off on a full disk.
    """
    sidecar = target.with_suffix(".json")
    if not (target.exists() and sidecar.exists()):
        return False
    try:
        json.loads(sidecar.read_bytes())
        images.open_image(target.read_bytes())
    except (ImageRejected, ValueError):
        return False
    return True


def check_own(targets: Sequence[Path]) -> None:
    """Checks that results can be written and that no other picture stands where one belongs.

    Raises:
        InvalidSpec: see :func:`_check_places`; another picture stands there: only results have a
            sidecar.
    """
    _check_places(targets)
    for target in targets:
        if target.exists() and not target.with_suffix(".json").exists():
            raise InvalidSpec(
                f"'{target}' has no sidecar, so it is no result that could be kept; choose another"
                " --output."
            )


def check_free(paths: Sequence[Path], force: bool) -> None:
    """Checks that results can be written and overwrite no file.

    Raises:
        InvalidSpec: see :func:`_check_places`; a result, its sidecar, or a file that may come
            beside it exists.
    """
    _check_places(paths)
    for path in paths:
        if path == STDIO:
            continue
        beside = path.parent.glob(f"{glob.escape(path.stem)}-*")
        taken = [path, path.with_suffix(".json"), *(each for each in beside if _beside(path, each))]
        for each in taken:
            if each.exists() and not force:
                raise InvalidSpec(
                    f"'{each}' exists; overwrite it with --force, or choose another --output."
                )


def _check_places(paths: Sequence[Path]) -> None:
    """Checks that every result has a place of its own, in a folder that can be written to.

    Raises:
        InvalidSpec: two results have the same name; a folder is missing or cannot be written to.
    """
    twice = [path for path, times in Counter(paths).items() if times > 1]
    if twice:
        raise InvalidSpec(
            f"Several of the pictures are called '{twice[0].name.partition('.')[0]}' and would"
            f" become '{twice[0]}'; compute them separately."
        )
    for path in paths:
        folder = path.parent
        if path != STDIO and not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise InvalidSpec(f"'{folder}' is no folder that can be written to.")


def _beside(path: Path, other: Path) -> bool:
    """Whether a result ``path`` may come with a file of the name of ``other``."""
    return bool(BESIDE.fullmatch(other.name.removeprefix(f"{path.stem}-")))


def output_options(hidden: bool = False) -> list[Callable[[Any], Any]]:
    """Options ``--output`` and ``--force``."""
    return [
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path, allow_dash=True),
            hidden=hidden,
            help=(
                "Result picture, a folder, or - for standard output; default: beside the input,"
                " with the task in its name."
            ),
        ),
        click.option("--force", is_flag=True, hidden=hidden, help="Overwrite existing files."),
    ]
