"""Files of the command line: several pictures, folders, patterns, pipes, no silent overwriting."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image, ImageFilter

from aps_cli.contact_sheet import GAP, LINE, SIDE
from aps_cli.main import main
from aps_core.imaging import images

PHOTOS = Path(__file__).parents[1] / "examples/photos"
QUICK = (
    "--operator",
    "denoise",
    "--sampler",
    "aps",
    "--steps",
    1,
    "--inner-steps",
    1,
    "--device",
    "cpu",
)


def aps(*arguments, stdin=None):
    return CliRunner().invoke(main, [str(a) for a in arguments], input=stdin)


@pytest.fixture
def folder(tmp_path):
    """Three small pictures and a text file."""
    for number, name in enumerate(("a.png", "b.jpg", "c.webp")):
        pixels = np.full((16, 16, 3), 80 * number, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


def test_a_folder_is_restored_once_per_picture_and_never_its_results(folder):
    done = aps("restore", folder, *QUICK)
    assert done.exit_code == 0, done.output
    results = [folder / f"{stem}.restored.png" for stem in "abc"]
    assert done.stdout.splitlines() == [str(path) for path in results]
    again = aps("restore", folder, *QUICK)
    assert again.exit_code == 2
    assert f"'{results[0]}' exists; overwrite it with --force" in again.output
    assert aps("restore", folder, "--force", *QUICK).stdout == done.stdout


def test_pictures_that_are_left_out_of_a_folder_are_named(folder):
    for name in ("scan.TIF", "moving.gif"):
        (folder / name).write_bytes(b"another format")
    done = aps("restore", folder, *QUICK)
    assert done.exit_code == 0, done.output
    assert "only PNG, JPEG and WebP are read: moving.gif, scan.TIF." in done.stderr
    assert "notes.txt" not in done.output


def test_continuing_destroys_nothing(folder):
    one = folder / "one.png"
    assert aps("restore", folder / "a.png", *QUICK, "-o", one).exit_code == 0
    kept = one.stat().st_mtime_ns
    again = aps("restore", folder / "a.png", *QUICK, "-o", one, "--continue")
    assert (again.exit_code, again.stdout) == (0, f"{one}\n")
    assert f"{one} of an earlier run is kept, whatever its settings." in again.stderr
    assert one.stat().st_mtime_ns == kept
    other = folder / "b.restored.png"
    other.write_bytes((folder / "a.png").read_bytes())
    for source in (folder / "b.jpg", folder):
        refused = aps("restore", source, *QUICK, "--continue")
        assert refused.exit_code == 2
        assert f"'{other}' has no sidecar" in refused.output
    assert other.read_bytes() == (folder / "a.png").read_bytes()


def test_pictures_of_one_name_are_both_restored(folder):
    (folder / "b.png").write_bytes((folder / "a.png").read_bytes())
    (folder / "broken.png").write_bytes(b"no picture")
    (folder / "inside").mkdir()
    done = aps("restore", folder, *QUICK, "-o", folder / "inside")
    assert "Folders inside are not read: inside." in done.stderr
    made = {path.name for path in (folder / "inside").glob("*.png")}
    names = ("a", "b.jpg", "b.png", "c")
    assert made == {"contact-sheet.png", *(f"{name}.restored.png" for name in names)}
    told = json.loads((folder / "inside" / "contact-sheet.json").read_text())["pictures"]
    assert [each["state"] for each in told].count("failed") == 1
    rows = np.asarray(Image.open(folder / "inside" / "contact-sheet.png")).shape[0]
    assert rows > 3 * SIDE, "the picture that failed is in it too"


def test_files_beside_a_result_are_not_overwritten(folder):
    for name in ("one-mean.png", "one-sample-1.png", "one-spread.npy"):
        taken = folder / name
        taken.write_text("precious")
        refused = aps(
            "restore", folder / "a.png", *QUICK, "--num-samples", 2, "-o", folder / "one.png"
        )
        assert (refused.exit_code, f"'{taken}' exists" in refused.output) == (2, True)
        assert taken.read_text() == "precious"
        assert not (folder / "one.png").exists()
        taken.unlink()
    (folder / "one-more.png").write_text("no result of this name")
    done = aps("restore", folder / "a.png", *QUICK, "-o", folder / "one.png")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", [("restore", *QUICK), ("degrade", "--operator", "denoise")])
def test_a_missing_folder_is_refused_before_computing(folder, command):
    name, *options = command
    refused = aps(name, folder / "a.png", *options, "-o", folder / "none" / "one.png")
    assert refused.exit_code == 2
    assert f"'{folder / 'none'}' is no folder that can be written to" in refused.output
    assert "Traceback" not in refused.output


def test_a_format_that_is_not_written_is_refused_before_computing(folder, monkeypatch):
    monkeypatch.setattr("aps_cli.compute.Backend.compute", lambda *_: pytest.fail("computed"))
    refused = aps("restore", folder / "a.png", *QUICK, "-o", folder / "one.jpg")
    assert (refused.exit_code, "written as .png or .webp" in refused.output) == (2, True)


def test_missing_pixels_of_a_degraded_picture_are_transparent(folder):
    made = aps("degrade", folder / "b.jpg", "--operator", "inpainting", "--mask-source", "random")
    assert made.exit_code == 0, made.output
    alpha = np.asarray(Image.open(made.stdout.strip()).getchannel("A"))
    assert abs((alpha == 0).mean() - 0.7) < 0.01
    inpainting = ("--operator", "inpainting", *QUICK[2:])
    done = aps("restore", made.stdout.strip(), *inpainting, "-o", folder / "filled.png")
    assert done.exit_code == 0, done.output
    assert aps("diagnose", made.stdout.strip()).stdout.count("70% of the pixels are transparent")


def test_a_picture_smaller_than_the_factor_is_not_degraded(folder):
    Image.new("RGB", (1, 1)).save(folder / "point.png")
    refused = aps("degrade", folder / "point.png", "--operator", "super_resolution")
    assert (refused.exit_code, "smaller than 4x4" in refused.output) == (2, True)


def test_a_pattern_goes_to_a_folder_and_one_bad_file_stops_no_other(folder):
    (folder / "broken.png").write_bytes(b"no picture")
    done = aps("restore", folder / "*.png", folder / "b.jpg", *QUICK, "-o", folder / "out")
    assert done.exit_code == 1
    assert f"{folder / 'broken.png'}: " in done.stderr
    assert sorted(path.name for path in (folder / "out").glob("*.png")) == [
        "a.restored.png",
        "b.restored.png",
        "contact-sheet.png",
    ]
    assert "3 pictures: 2 restored" in done.stderr
    assert done.stderr.count("1 failed") == 1
    refused = aps("restore", folder / "a.png", folder / "b.jpg", *QUICK, "-o", folder / "one.png")
    assert (refused.exit_code, "need a folder" in refused.output) == (2, True)
    assert aps("restore", folder / "x*.png", *QUICK).exit_code == 2


def test_a_run_ends_with_a_contact_sheet_and_one_line(folder):
    done = aps("restore", folder, *QUICK)
    assert "[2/3] " in done.stderr
    assert re.search(r"3 pictures: 3 restored \(.*(agree|undecided).*\)\.", done.stderr)
    sheet = folder / "contact-sheet.png"
    assert f"Before and after: {sheet}" in done.stderr
    pixels = np.asarray(Image.open(sheet))
    width = 2 * (2 * SIDE + 4 * GAP) + GAP
    assert pixels.shape[1] == width
    before = pixels[GAP + LINE + SIDE // 2, [GAP + SIDE // 2, GAP + SIDE // 2 + width // 2]]
    assert abs(before[0].astype(int) - 0).max() < 5
    assert abs(before[1].astype(int) - 80).max() < 5
    told = json.loads(sheet.with_suffix(".json").read_text())["pictures"]
    assert [(Path(each["picture"]).name, each["state"]) for each in told] == [
        ("a.png", "done"),
        ("b.jpg", "done"),
        ("c.webp", "done"),
    ]


def test_a_contact_sheet_shows_pictures_of_16_bits(tmp_path):
    for name in ("a.png", "b.png"):
        Image.fromarray(np.full((16, 16), 80 << 8, dtype=np.uint16)).save(tmp_path / name)
    done = aps("restore", tmp_path, *QUICK)
    assert done.exit_code == 0, done.output
    pixels = np.asarray(Image.open(tmp_path / "contact-sheet.png"))
    assert abs(int(pixels[GAP + LINE + SIDE // 2, GAP + SIDE // 2, 0]) - 80) < 2


def test_an_interrupted_run_continues_and_keeps_what_is_done(folder):
    assert aps("restore", folder / "b.jpg", *QUICK).exit_code == 0
    kept = (folder / "b.restored.png").stat().st_mtime_ns
    done = aps("restore", folder, *QUICK, "--continue")
    assert done.exit_code == 0, done.output
    assert (folder / "b.restored.png").stat().st_mtime_ns == kept
    assert "b.jpg" not in done.stderr
    assert done.stderr.count("of an earlier run is kept") == 1
    assert "3 pictures: 3 restored" in done.stderr
    again = aps("restore", folder, *QUICK, "--continue")
    assert "[" not in again.stderr
    assert (folder / "contact-sheet-2.png").exists(), "an earlier sheet is not overwritten"


def test_a_picture_with_nothing_to_restore_is_left_as_it_is(tmp_path):
    photo = Image.open(PHOTOS / "chelsea.png").convert("RGB").crop((90, 90, 154, 154))
    photo.save(tmp_path / "fine.png")
    photo.filter(ImageFilter.GaussianBlur(2)).save(tmp_path / "soft.png")
    quick = ("--sampler", "aps", "--steps", 1, "--inner-steps", 1, "--device", "cpu")
    done = aps("restore", tmp_path, "--operator", "auto", *quick)
    assert done.exit_code == 0, done.output
    assert f"{tmp_path / 'fine.png'}: left as it is. Nothing seems to be wrong" in done.stderr
    assert re.search(r"2 pictures: 1 restored \(.*\), 1 left as it is\.", done.stderr)
    names = ("soft.restored.png", "soft.restored-blur.png")  # the blur that was found is drawn
    assert done.stdout.splitlines() == [str(tmp_path / name) for name in names]
    told = json.loads((tmp_path / "contact-sheet.json").read_text())["pictures"]
    assert [each["state"] for each in told] == ["left", "done"]
    assert told[1]["words"][0].startswith("a Gaussian blur of ")
    alone = aps("restore", tmp_path / "fine.png", "--operator", "auto", *quick)
    assert alone.exit_code == 1, "no result was written"


def test_pictures_pass_through_pipes(folder):
    data = (folder / "a.png").read_bytes()
    degraded = aps("degrade", "-", "--operator", "denoise", "-o", "-", stdin=data)
    assert degraded.exit_code == 0, degraded.output
    done = aps("restore", "-", *QUICK, stdin=degraded.stdout_bytes)
    assert done.exit_code == 0, done.output
    assert images.open_image(done.stdout_bytes).image.size == (16, 16)
    assert not list(folder.glob("*.json"))


def test_a_preset_chooses_the_steps(folder):
    out = folder / "out.png"
    arguments = ("--operator", "denoise", "--device", "cpu", "--inner-steps", 1, "-o", out)
    done = aps("restore", folder / "a.png", "--preset", "fast", *arguments)
    assert done.exit_code == 0, done.output
    spec = json.loads(out.with_suffix(".json").read_text())["spec"]
    assert (spec["preset"], spec["sampler"]["steps"], spec["sampler"]["inner_steps"]) == (
        "fast",
        5,
        1,
    )


def test_help_shows_types_ranges_and_what_a_shared_option_means_for_each_operator():
    text = " ".join(aps("restore", "--help").stdout.split())
    assert "VALUE" not in text
    for words in (
        "--preset fast|balanced|best",
        "--steps INTEGER",
        "[1 to 128]",
        "--sigma NUMBER|auto",
        "[0 to 1; default: auto]",
        "--factor 2|4|8",
    ):
        assert words in text
    seeds = text.partition("--operator-seed INTEGER")[2].partition("--o")[0]
    assert "inpainting" in seeds
    assert "motion_blur" in seeds


@pytest.mark.parametrize(
    ("words", "number", "offered"),
    [("aps rest", 1, "restore"), ("aps restore a.png --preset f", 4, "fast")],
)
def test_the_shell_completes_commands_and_choices(words, number, offered):
    environment = {"COMP_WORDS": words, "COMP_CWORD": str(number), "_APS_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", "from aps_cli.main import main; main(prog_name='aps')"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert f"plain,{offered}" in done.stdout
