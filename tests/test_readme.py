"""What the README shows works as shown."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from aps_core.capabilities import operator_table
from aps_core.images import open_image

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_python_block_runs(tmp_path, monkeypatch, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    picture = open_image((tmp_path / "restored.png").read_bytes())
    assert (picture.width, picture.height) == (128, 128)
    assert "4 0." in capsys.readouterr().out


@pytest.mark.parametrize(("script", "photo"), [("custom_operator", "coffee"), ("restore_photo", "chelsea")])
def test_examples_run(tmp_path, script, photo):
    # a process of its own: a class that registers here would be an operator of every later test
    call = f"import {script}; from pathlib import Path; {script}.main(Path('photos/{photo}.png'), Path({str(tmp_path / 'out.png')!r}), steps=2)"
    subprocess.run([sys.executable, "-c", call], cwd=ROOT / "examples", check=True, timeout=120)
    picture = open_image((tmp_path / "out.png").read_bytes())
    assert (picture.width, picture.height) == (128, 128)


def test_operator_table_is_the_registrys():
    assert operator_table() in README


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
