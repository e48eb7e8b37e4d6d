"""The examples run; test_docs covers the pages that show them."""

import subprocess
import sys
from pathlib import Path

import pytest

from aps_core.imaging.images import open_image

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("script", "photo"), [("custom_operator", "coffee"), ("restore_photo", "chelsea")]
)
def test_examples_run(tmp_path, script, photo):
    # in a separate process, because a class registered here would affect later tests
    call = (
        f"import {script}; from pathlib import Path; {script}.main(Path('photos/{photo}.png'),"
        f" Path({str(tmp_path / 'out.png')!r}), steps=2)"
    )
    subprocess.run([sys.executable, "-c", call], cwd=ROOT / "examples", check=True, timeout=600)
    picture = open_image((tmp_path / "out.png").read_bytes())
    assert (picture.width, picture.height) == (128, 128)
