"""Results that cannot be written: one line names the file, and nothing is left in part."""

import json
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import aps_client
from aps_cli.main import main
from aps_client.models import save
from aps_client.writing import write_whole
from aps_core.imaging import images

STEPS = ("--steps", 1, "--inner-steps", 1)
QUICK = ("--operator", "denoise", "--sampler", "aps", *STEPS, "--device", "cpu")
LIMIT = 4000
"""Bytes: more than a sidecar, less than a noisy picture."""
FULL = Path("/dev/full")


def aps(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@contextmanager
def full_disk():
    """Files longer than ``LIMIT`` cannot be written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def photos(tmp_path):
    """A folder of a flat and a noisy picture, and an empty one for results."""
    folder, out = tmp_path / "photos", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    Image.fromarray(np.full((16, 16, 3), 80, dtype=np.uint8)).save(folder / "flat.png")
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "noisy.png")
    return folder, out


@pytest.mark.parametrize("command", [("restore", *QUICK), ("degrade", "--operator", "denoise")])
def test_a_full_disk_is_one_line_and_leaves_no_file(photos, command):
    folder, out = photos
    name, *options = command
    with full_disk():
        failed = aps(name, folder / "noisy.png", *options, "-o", out / "x.png")
    assert failed.exit_code == 1, failed.output
    told = f"aps: {out / 'x.png'} could not be written: File too large."
    assert failed.stderr.splitlines()[-1] == told
    assert (failed.stdout, os.listdir(out)) == ("", [])


def test_a_full_disk_stops_no_other_picture_and_leaves_no_contact_sheet(photos):
    folder, out = photos
    with full_disk():
        failed = aps("restore", folder, *QUICK, "-o", out)
    assert failed.exit_code == 1, failed.output
    lines = failed.stderr.splitlines()
    missing = f"{out / 'noisy.restored.png'} could not be written: File too large."
    assert f"{folder / 'noisy.png'}: {missing}" in lines
    sheet = out / "contact-sheet.png"
    assert lines[-1] == f"aps: {sheet} could not be written: File too large."
    assert sorted(os.listdir(out)) == ["flat.restored.json", "flat.restored.png"]
    resumed = aps("restore", folder, *QUICK, "-o", out, "--continue")
    assert resumed.exit_code == 0, resumed.output
    assert "flat.png" not in resumed.stderr
    assert images.open_image((out / "noisy.restored.png").read_bytes()).image.size == (64, 64)


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_standard_output_that_is_full_is_one_line(photos):
    command = ("degrade", photos[0] / "flat.png", "--operator", "denoise", "-o", "-")
    with FULL.open("wb") as full:
        failed = subprocess.run(
            [sys.executable, "-c", "from aps_cli.main import main; main()", *command],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    told = "aps: standard output could not be written: No space left on device.\n"
    assert (failed.returncode, failed.stderr) == (1, told)


def test_a_folder_for_results_that_cannot_be_made_is_one_line(photos):
    folder, out = photos
    (out / "taken").write_text("a file")
    failed = aps("restore", folder, *QUICK, "-o", out / "taken")
    told = f"aps: {out / 'taken'} could not be written: File exists."
    assert (failed.exit_code, failed.stderr.splitlines()[-1]) == (1, told)


@pytest.mark.parametrize("suffix", [".png", ".json"])
def test_a_result_that_was_cut_off_is_computed_again(photos, suffix):
    folder, out = photos
    assert aps("restore", folder, *QUICK, "-o", out).exit_code == 0
    whole = out / "noisy.restored.png"
    expected = images.open_image(whole.read_bytes()).digest()
    for sources, target in ((folder, out), (folder / "noisy.png", whole)):
        part = whole.with_suffix(suffix)
        part.write_bytes(part.read_bytes()[:500])
        resumed = aps("restore", sources, *QUICK, "-o", target, "--continue")
        assert resumed.exit_code == 0, resumed.output
        assert "flat.png" not in resumed.stderr, "what is complete is kept"
        assert images.open_image(whole.read_bytes()).digest() == expected
        assert json.loads(whole.with_suffix(".json").read_text())["spec"]


def test_continuing_refuses_results_of_one_name(photos):
    folder, out = photos
    other = folder / "other"
    other.mkdir()
    Image.new("RGB", (16, 16), "red").save(other / "flat.png")
    Image.new("RGB", (16, 16), "blue").save(folder / "flat.jpg")
    for continued in ((), ("--continue",)):
        refused = aps("restore", folder, other, *QUICK, "-o", out, *continued)
        assert refused.exit_code == 2, refused.output
        assert "Several of the pictures are called 'flat'" in refused.stderr
        assert os.listdir(out) == []


def test_continuing_refuses_a_missing_folder_before_computing(photos):
    folder, out = photos
    missing = out / "none"
    target = missing / "x.png"
    refused = aps("restore", folder / "flat.png", *QUICK, "-o", target, "--continue")
    assert refused.exit_code == 2, refused.output
    assert f"'{missing}' is no folder that can be written to" in refused.stderr


def test_a_saved_result_is_whole_and_its_picture_comes_last(tmp_path, monkeypatch):
    renamed = []
    replace = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda part, to: (renamed.append(Path(to).name), replace(part, to))[1]
    )
    files = {"result.png": b"picture", "mean.png": b"mean", "result.json": b"{}"}
    paths = save(files, tmp_path / "x.png")
    assert paths == [tmp_path / "x.png", tmp_path / "x-mean.png"]
    assert renamed[-1] == "x.png"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "x.png": b"picture",
        "x-mean.png": b"mean",
        "x.json": b"{}\n",
    }
    with full_disk(), pytest.raises(aps_client.NotWritten, match=r"x\.png could not") as told:
        save({**files, "mean.png": b"other", "result.png": bytes(LIMIT + 1)}, tmp_path / "x.png")
    assert isinstance(told.value, OSError)
    assert (tmp_path / "x.png").read_bytes() == b"picture"
    assert (tmp_path / "x-mean.png").read_bytes() == b"mean"
    assert len(os.listdir(tmp_path)) == 3


def test_links_and_devices_stay_what_they_are(tmp_path):
    real, link, pipe = (tmp_path / name for name in ("real.png", "link.png", "pipe"))
    real.write_bytes(b"old")
    link.symlink_to(real)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole({link: b"new", pipe: b"through"})
    assert (link.is_symlink(), real.read_bytes()) == (True, b"new")
    assert (pipe.is_fifo(), os.read(reader, 100)) == (True, b"through")
    os.close(reader)
