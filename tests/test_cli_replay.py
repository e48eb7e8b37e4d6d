import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from aps_cli.main import main

PHOTO = Path(__file__).parent.parent / "examples" / "photos" / "coffee.png"
QUICK = ("--steps", "2", "--inner-steps", "2", "--working-size", "32")


def aps(*arguments: object):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("made") / "out.png"
    done = aps(
        "restore", PHOTO, "--operator", "gaussian_blur", "--num-samples", "2", *QUICK, "-o", out
    )
    assert done.exit_code == 0, done.output
    return out


def test_replay_gives_the_same_bytes(made, tmp_path):
    done = aps("replay", made.with_suffix(".json"), PHOTO, "-o", tmp_path)
    assert done.exit_code == 0, done.output
    assert "bit for bit" in done.output
    assert (tmp_path / "result.png").read_bytes() == made.read_bytes()
    for name in ("sample-2.png", "mean.png", "spread.npy"):
        assert (tmp_path / name).read_bytes() == made.with_name(f"out-{name}").read_bytes()
    again = aps("replay", made.with_suffix(".json"), PHOTO, "-o", tmp_path)
    assert again.exit_code == 2
    assert "exists; overwrite it with --force" in again.output


def test_differences_are_named(made, tmp_path):
    record = json.loads(made.with_suffix(".json").read_text())
    record["samples_sha256"][0] = "0" * 64
    record["origin"]["torch"] = "1.0"
    (tmp_path / "other.json").write_text(json.dumps(record))
    done = aps("replay", tmp_path / "other.json", PHOTO, "-o", tmp_path)
    assert done.exit_code == 1
    assert "torch 1.0 then" in done.output


def test_the_inputs_must_be_the_same(made, tmp_path):
    other = tmp_path / "other.png"
    shutil.copy(PHOTO.with_name("rocket.png"), other)
    done = aps("replay", made.with_suffix(".json"), other)
    assert done.exit_code == 2
    assert "The given pictures do not include the job's image" in done.output


def test_mistakes_are_noticed_before_anything_is_loaded(made, tmp_path, monkeypatch):
    for heavy in ("torch", "aps_core.engines.engine"):
        monkeypatch.setitem(sys.modules, heavy, None)
    sidecar, earlier = made.with_suffix(".json"), tmp_path / "result.json"
    other = PHOTO.with_name("rocket.png")
    assert "is not a sidecar" in aps("replay", PHOTO, "-o", tmp_path).output
    assert "do not include the job's image" in aps("replay", sidecar, other, "-o", tmp_path).output
    earlier.touch()
    assert f"'{earlier}' exists" in aps("replay", sidecar, PHOTO, "-o", tmp_path).output


def test_only_sidecars_are_accepted(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    done = aps("replay", tmp_path / "x.json")
    assert done.exit_code == 2
    assert "lacks origin, spec" in done.output
