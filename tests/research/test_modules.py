"""Studies and benchmarks can be imported, and the commands that pages name exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("benchmarks", "research")
    for path in (ROOT / folder).rglob("*.py")
)
COMMAND = re.compile(r"\bpython -m ((?:benchmarks|research)[.\w]*\w)")


@pytest.mark.parametrize("module", MODULES)
def test_every_module_can_be_imported_and_every_command_says_what_it_does(module, monkeypatch):
    command = getattr(importlib.import_module(module), "main", None)
    if command is not None:
        monkeypatch.setattr("sys.argv", [module, "--help"])
        with pytest.raises(SystemExit) as ended:
            command()
        assert ended.value.code in (None, 0)


def test_every_command_that_a_page_names_is_a_module():
    folders = ("aps_core", "benchmarks", "docs", "research", "training")
    pages = [*ROOT.glob("*.md")]
    pages += [page for folder in folders for page in (ROOT / folder).rglob("*.*")]
    named = {
        (page.name, module)
        for page in pages
        if page.suffix in (".md", ".py")
        for module in COMMAND.findall(page.read_text())
    }
    assert len(named) > 50
    assert {module for _, module in named} <= set(MODULES), named


def test_links_of_the_studies_pages_resolve():
    for page in (ROOT / "research").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
