"""``aps edit`` and ``aps stylize`` with the embedded prior."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from aps_cli.main import main
from aps_core.imaging import images

QUICK = ("--steps", 2, "--inner-steps", 2, "--device", "cpu")


def aps(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def opened(path):
    return images.open_image(path.read_bytes()).image


def photo(path, size=(48, 40)):
    Image.fromarray(
        np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    ).save(path)
    return path


def test_edit_keeps_the_known_pixels(tmp_path):
    source, mask, out = photo(tmp_path / "a.png"), tmp_path / "mask.png", tmp_path / "out.png"
    known = np.full((40, 48), 255, dtype=np.uint8)
    known[10:30, 12:36] = 0
    Image.fromarray(known).save(mask)
    done = aps("edit", source, "a red flower", "--mask", mask, "--seed", 3, *QUICK, "-o", out)
    assert done.exit_code == 0, done.output
    before, after = (np.asarray(opened(path)) for path in (source, out))
    assert np.array_equal(before[known > 0], after[known > 0])
    assert json.loads(out.with_suffix(".json").read_text())["spec"]["seed"] == 3
    grown = tmp_path / "grown.png"
    assert (
        aps("edit", source, "a meadow", "--left", 8, "--bottom", 4, *QUICK, "-o", grown).exit_code
        == 0
    )
    assert opened(grown).size == (56, 44)


def test_stylize_reports_the_style_distance(tmp_path):
    style, out = photo(tmp_path / "style.png"), tmp_path / "out.png"
    done = aps("stylize", style, "a castle", "--width", 48, "--height", 32, *QUICK, "-o", out)
    assert done.exit_code == 0, done.output
    assert opened(out).size == (48, 32)
    sidecar = json.loads(out.with_suffix(".json").read_text())
    assert len(sidecar["misfit_curve"]) == 2
    with_content = aps(
        "stylize",
        style,
        "a castle",
        "--image",
        photo(tmp_path / "c.png", (32, 24)),
        "--content-strength",
        0.7,
        *QUICK,
        "--force",
        "-o",
        out,
    )
    assert with_content.exit_code == 0, with_content.output
    assert opened(out).size == (32, 24)


def test_bad_input_is_one_line_and_exit_code_2(tmp_path, monkeypatch):
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))
    source = photo(tmp_path / "a.png")
    for arguments, words in (
        (("edit", source, "a flower"), "No part to regenerate is marked"),
        (("edit", source, "--left", 4), "Missing argument 'PROMPT'"),
        (("edit",), "Missing argument 'PHOTO...'"),
        (("edit", "a flower", "--left", 4), "Missing argument 'PHOTO...'"),
        (
            ("edit", source, " ", "--left", 4),
            "Invalid value for 'PROMPT': String should have at least 1 character",
        ),
        (
            ("edit", source, "a flower", "--mask", photo(tmp_path / "m.png", (20, 20))),
            "must have the same size",
        ),
        (
            ("stylize", source, "a flower", "--num-samples", 99),
            "'--num-samples': Input should be less than or equal to 16",
        ),
        (("stylize", source, "a flower", "--measure", "csd", "--device", "cpu"), "csd-vit-l"),
    ):
        done = aps(*arguments)
        assert done.exit_code == 2, done.output
        assert words in done.output
        assert done.output.strip().splitlines()[-1].startswith("aps: ")


def test_a_grey_picture_with_photon_noise_is_restored_in_colour(tmp_path):
    source, grey, out = photo(tmp_path / "a.png"), tmp_path / "grey.png", tmp_path / "out.png"
    noise = ("--noise", "poisson", "--peak", 50)
    done = aps("degrade", source, "--operator", "colorize", *noise, "-o", grey)
    assert done.exit_code == 0, done.output
    counted = np.asarray(opened(grey)).astype(int)
    assert np.ptp(counted, axis=-1).max() == 0
    aps("degrade", source, "--operator", "colorize", "--sigma", 0, "-o", out)
    clean = np.asarray(opened(out)).astype(int)
    spread = np.abs(counted - clean)[..., 0]
    assert spread[clean[..., 0] > 180].mean() > 1.3 * spread[clean[..., 0] < 60].mean()
    done = aps("restore", grey, "--operator", "colorize", *noise, *QUICK, "--force", "-o", out)
    assert done.exit_code == 0, done.output
    spec = json.loads(out.with_suffix(".json").read_text())["spec"]
    assert (spec["noise"], spec["peak"]) == ("poisson", 50.0)
    assert spec["sigma"] == pytest.approx(0.00226, abs=1e-5), "rounding to 8 bits"
    assert np.ptp(np.asarray(opened(out)).astype(int), axis=-1).max() > 0
