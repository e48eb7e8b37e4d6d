"""Breaking changes since the last release, of the Python packages and of the HTTP interface.

    scripts/check-breaking                    # prints them
    scripts/check-breaking --release v0.2.0   # after a release: its interface is the new baseline

The interface of the last release is in ``tests/baselines``: a stub of what each package exports,
and the OpenAPI document. Values of attributes and types of parameters are not compared.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import griffe

from scripts.openapi_changes import Json, http_changes

ROOT = Path(__file__).parents[1]
BASELINES = ROOT / "tests" / "baselines"
PACKAGES = ("aps_core", "aps_client")
DOCUMENT = "docs/openapi.json"
WORDS = ("description", "summary", "title", "example", "examples")
"""Parts of the OpenAPI document that the baseline leaves out."""


def packages(folder: Path) -> dict[str, griffe.Module]:
    """What the source files of a folder define; all packages are read, as some export names of
    others.
    """
    loader = griffe.GriffeLoader(search_paths=[folder])
    every = [path.parent.name for path in folder.glob("*/__init__.py")]
    found = {name: loader.load(name, try_relative_path=False) for name in every}
    loader.resolve_aliases()
    return {name: cast(griffe.Module, found[name]) for name in PACKAGES}


def stub(package: griffe.Module) -> str:
    """What a package exports, as Python: names, members of classes, parameters and defaults."""
    lines = [f'"""The interface of {package.name} at the last release."""']
    for name in sorted(map(str, package.exports or ())):
        lines += rendered(name, package[name].final_target)
    return "\n".join([*lines, ""])


def rendered(name: str, each: griffe.Object | griffe.Alias) -> Iterator[str]:
    """Lines of one name. Classes have the public members that they inherit within the package."""
    if each.is_class:
        yield f"class {name}:"
        for key, member in sorted(each.all_members.items()):
            if not key.startswith("_") or key in ("__init__", "__call__"):
                yield from (f"    {line}" for line in rendered(key, member))
        yield "    ..."
    elif each.is_function:
        function = cast(griffe.Function, each)
        yield from (f"@{kind}" for kind in sorted(each.labels & {"classmethod", "staticmethod"}))
        told, names = function.signature(return_type=True, name=name), list(function.parameters)
        if names and (own := names[0].name) in ("self", "cls"):  # which a signature leaves out
            told = told.replace("(", f"({own}, " if len(names) > 1 else f"({own}", 1)
        yield f"def {told}: ..."
    elif each.is_attribute:
        yield f"{name}: object"


def python_changes(name: str, old: str, new: str) -> Iterator[str]:
    """One line for each change between two stubs of a package, such as ``aps_core.restore(seed):
    parameter was removed``.
    """
    before, after = (griffe.visit(name, Path(f"{name}.pyi"), each) for each in (old, new))
    for change in griffe.find_breaking_changes(before, after):
        values = [each for each in (change.old_value, change.new_value) if each is not None]
        parameters = [each for each in values if isinstance(each, griffe.Parameter)]
        told = f"({parameters[0].name})" if parameters else ""
        defaults = [str(each.default) for each in parameters]
        detail = f", {' to '.join(defaults)}" if len(set(defaults)) == 2 else ""
        kind = change.kind.value
        yield f"{change.obj.path}{told}: {kind[0].lower()}{kind[1:]}{detail}"


def without_words(document: Json) -> Json:
    """An OpenAPI document without descriptions; fields that have such names stay."""

    def bare(part: Any) -> Any:
        if isinstance(part, list):
            return [bare(each) for each in part]
        if not isinstance(part, dict):
            return part
        kept = (key for key in part if key not in WORDS or isinstance(part[key], dict))
        return {key: bare(part[key]) for key in kept}

    return cast(Json, bare(document))


def breaking_changes() -> list[str]:
    """All of them, between the baseline and the working tree."""
    now = packages(ROOT)
    found = [
        line
        for name in PACKAGES
        for line in python_changes(name, (BASELINES / f"{name}.pyi").read_text(), stub(now[name]))
    ]
    old = json.loads((BASELINES / "openapi.json").read_text())
    return [*found, *http_changes(old, json.loads((ROOT / DOCUMENT).read_text()))]


def release(reference: str) -> None:
    """Makes the interface of a commit the baseline."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["git", "archive", "--format=tar", reference, "*.py", DOCUMENT]
        archive = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        for name, package in packages(Path(folder)).items():
            (BASELINES / f"{name}.pyi").write_text(stub(package))
        document = without_words(json.loads((Path(folder) / DOCUMENT).read_text()))
    (BASELINES / "openapi.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def main() -> None:
    """Prints the changes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--release", metavar="TAG", help="its interface becomes the baseline")
    asked = parser.parse_args()
    if asked.release:
        release(asked.release)
    else:
        print("\n".join(breaking_changes()))


if __name__ == "__main__":
    main()
