"""``aps diagnose``: the command that it proposes is accepted."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image, ImageFilter

from aps_cli import compute
from aps_cli.main import main

PHOTOS = Path(__file__).parents[1] / "examples" / "photos"


def aps(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def test_a_sound_picture_is_noticed_before_a_prior_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(compute, "_engine", lambda *_: pytest.fail("a prior is loaded"))
    command = ("restore", PHOTOS / "coffee.png", "--operator", "auto", "-o", tmp_path / "a.png")
    done = aps(*command)
    assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1), done.output
    assert "There is nothing to restore" in done.stderr


def blurred(path, size):
    with Image.open(PHOTOS / "garden.png") as photo:
        photo.convert("RGB").resize(size).filter(ImageFilter.GaussianBlur(3)).save(path)


@pytest.mark.parametrize(
    ("name", "size", "more"),
    [
        ("large.png", (1000, 700), "--working-size 612"),
        ("-x.png", (256, 192), ""),
    ],
)
def test_the_proposed_command_is_accepted(tmp_path, monkeypatch, name, size, more):
    monkeypatch.chdir(tmp_path)
    blurred(Path(name), size)
    told = aps("diagnose", f"./{name}")
    assert told.exit_code == 0, told.output
    command = shlex.split(told.stdout.partition("Try: aps ")[2])
    assert more in shlex.join(command)

    def started(*_, **__):
        raise InterruptedError("accepted")

    monkeypatch.setattr(compute, "default_device", lambda _: "cpu")
    monkeypatch.setattr("aps_core.tasks.run", started)
    done = aps(*command)
    assert isinstance(done.exception, InterruptedError), done.output
