"""The floors inside ``aps_core``: an import goes down, never up and never in a circle, also inside
functions and under TYPE_CHECKING. Functions import only what loads a heavy library.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "aps_core"
FLOORS = (
    *("_lazy", "errors", "registry", "types"),
    *("numerics", "checkpoints", "imaging"),
    *("operators", "adapters"),  # forward models only
    *("tokenizers", "objectives", "losses", "style_measures", "verdict", "runtime"),
    "sampling",
    "aps",  # Algorithm 1
    "samplers",
    "text",  # the method for language models
    *("priors", "engines"),
    "identify",  # diagnosis, blind estimation, the kinds that mean "unknown"
    "restoration",
    "tasks",
    *("capabilities", "theory", "evaluation"),
)
"""Rooms, lowest first: each may import those before it."""
HEAVY = {"torch", "safetensors", "transformers", "tokenizers", "matplotlib", "skimage"}
"""Libraries that are worth an import inside a function."""


class Import(NamedTuple):
    """An import statement of a module."""

    targets: list[str]
    deferred: bool
    """Whether it stands in a function."""
    typing: bool
    """Whether it stands under TYPE_CHECKING."""


def statements(node: ast.AST, deferred: bool = False, typing: bool = False) -> Iterator[Import]:
    """All imports below a syntax node."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import():
                yield Import([alias.name for alias in child.names], deferred, typing)
            case ast.ImportFrom():
                names = [f"{child.module}.{alias.name}" for alias in child.names]
                yield Import([f"{child.module}", *names], deferred, typing)
            case ast.If() if ast.unparse(child.test) == "TYPE_CHECKING":
                yield from statements(ast.Module(child.body, []), deferred, True)
                yield from statements(ast.Module(child.orelse, []), deferred, typing)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from statements(child, True, typing)
            case _:
                yield from statements(child, deferred, typing)


class Library:
    """Modules of a copy of the package, and their imports of each other."""

    def __init__(self, root: Path) -> None:
        files = {
            ".".join(path.relative_to(root).with_suffix("").parts): path
            for path in (root / PACKAGE).rglob("*.py")
        }
        self.imports = {
            name.removesuffix(".__init__"): list(statements(ast.parse(path.read_text())))
            for name, path in files.items()
        }

    def module(self, name: str) -> str:
        """The module that an imported name is, or stands in; empty if it is not of the package."""
        while name and name not in self.imports:
            name = name.rpartition(".")[0]
        return name if name != PACKAGE else ""

    def modules(self, statement: Import) -> set[str]:
        """Modules of the package that a statement imports."""
        return {self.module(target) for target in statement.targets} - {""}

    @cached_property
    def arrows(self) -> dict[str, set[str]]:
        """Which modules each imports, wherever the import stands; not its own package's front."""
        return {
            name: {
                target
                for statement in found
                for target in self.modules(statement)
                if target != name and not name.startswith(f"{target}.")
            }
            for name, found in self.imports.items()
            if name != PACKAGE  # its names are imported at their first use
        }

    def upward(self) -> list[str]:
        """Imports of a room above the importer's."""
        return [
            f"{name} imports {target}"
            for name, targets in self.arrows.items()
            for target in sorted(targets)
            if floor(target) > floor(name)
        ]

    def circles(self) -> list[str]:
        """Modules that import each other, directly or not."""
        left = dict(self.arrows)
        while free := [name for name, targets in left.items() if not targets & left.keys()]:
            for name in free:
                del left[name]
        # what only leads into a circle is no part of it
        while ends := left.keys() - {target for targets in left.values() for target in targets}:
            for name in ends:
                del left[name]
        return sorted(left)

    def libraries(self, name: str) -> set[str]:
        """Heavy libraries that are loaded when a module is imported."""
        loaded, seen, pending = set[str](), set[str](), [name]
        while pending:
            if (current := pending.pop()) in seen:
                continue
            seen.add(current)
            parent = current.rpartition(".")[0]
            pending += [parent] if self.module(parent) else []
            for statement in self.imports.get(current, []):
                if not statement.deferred and not statement.typing:
                    loaded |= {target.split(".")[0] for target in statement.targets} & HEAVY
                    pending += self.modules(statement)
        return loaded

    def needless(self) -> list[str]:
        """Imports inside functions that defer no heavy library."""
        return [
            f"{name} defers {statement.targets[0]}"
            for name, found in self.imports.items()
            for statement in found
            if statement.deferred and not self._loads(statement) - self.libraries(name)
        ]

    def _loads(self, statement: Import) -> set[str]:
        own = {library for target in self.modules(statement) for library in self.libraries(target)}
        return own | {target.split(".")[0] for target in statement.targets} & HEAVY


def floor(module: str) -> int:
    room = module.split(".")[1]
    assert room in FLOORS, f"'{room}' is a room without a floor; add it to FLOORS"
    return FLOORS.index(room)


@pytest.fixture(scope="module")
def library() -> Library:
    return Library(ROOT)


def test_no_arrow_points_up(library: Library) -> None:
    assert library.upward() == []


def test_no_imports_go_in_a_circle(library: Library) -> None:
    assert library.circles() == []


def test_functions_import_only_what_is_heavy(library: Library) -> None:
    assert library.needless() == []


@pytest.mark.parametrize(
    "planted",
    [
        "from aps_core.restoration.plan import Plan\n",
        "def f():\n    from aps_core.restoration.plan import Plan\n",
        "if TYPE_CHECKING:\n    from aps_core.restoration import plan\n",
    ],
)
def test_a_planted_arrow_up_is_found(tmp_path: Path, planted: str) -> None:
    shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE, ignore=shutil.ignore_patterns("embedded"))
    file = tmp_path / PACKAGE / "operators" / "hdr.py"
    file.write_text(file.read_text() + planted)
    found = Library(tmp_path).upward()
    assert "aps_core.operators.hdr imports aps_core.restoration.plan" in found
    assert all(arrow.startswith("aps_core.operators.hdr") for arrow in found)


def test_a_planted_circle_and_a_needless_import_are_found(tmp_path: Path) -> None:
    shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE, ignore=shutil.ignore_patterns("embedded"))
    file = tmp_path / PACKAGE / "operators" / "denoise.py"
    planted = "def f():\n    from aps_core.operators.compose import Compose\n"
    file.write_text(file.read_text() + planted)
    changed = Library(tmp_path)
    assert {"aps_core.operators.denoise", "aps_core.operators.compose"} <= set(changed.circles())
    assert changed.upward() == []
    assert changed.needless() == ["aps_core.operators.denoise defers aps_core.operators.compose"]
