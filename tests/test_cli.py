"""The command line: pictures, one-line errors, exit codes."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from aps_cli.main import main
from aps_core.evaluation.metrics import psnr
from aps_core.imaging import images
from aps_core.imaging.resampling import resize
from aps_core.operators.super_resolution import SuperResolution

PHOTOS = Path(__file__).parents[1] / "examples" / "photos"
QUICK = ["--steps", "2", "--inner-steps", "3", "--device", "cpu"]


def aps(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def picture(path: Path) -> torch.Tensor:
    return images.to_tensor(images.open_image(path.read_bytes()))


@pytest.fixture
def photo(tmp_path):
    """A photograph of 31x47 pixels, odd in both dimensions."""
    path = tmp_path / "photo.png"
    x = resize(picture(PHOTOS / "chelsea.png"), (31, 47)).clamp(-1, 1)
    path.write_bytes(images.encode_png(x))
    return path


@pytest.mark.slow
def test_odd_sizes_are_restored_at_four_times_the_size(photo, tmp_path):
    out = tmp_path / "big.png"
    result = aps(
        "restore",
        photo,
        "--operator",
        "super_resolution",
        "--factor",
        "4",
        "--sigma",
        "0.02",
        "--steps",
        3,
        "--inner-steps",
        10,
        "-o",
        out,
    )
    assert result.exit_code == 0, result.output
    x = picture(out)
    assert x.shape == (3, 124, 188)
    reduced = SuperResolution().bind((3, 124, 188))(x[None])
    assert psnr(reduced, picture(photo)[None]).item() > 24  # consistent with the measurement
    sidecar = json.loads(out.with_suffix(".json").read_text())
    assert sidecar["spec"]["sampler"]["inner_steps"] == 10
    assert sidecar["size"] == {"width": 188, "height": 124}
    with Image.open(out) as made:
        assert "not evidence" in made.info["Comment"]


def test_a_phone_photo_is_too_large_unless_reduced(tmp_path):
    phone = tmp_path / "phone.jpg"
    images.to_pil(resize(picture(PHOTOS / "garden.png"), (3000, 4000))).save(phone)
    refused = aps("restore", phone, "--operator", "denoise", *QUICK)
    assert refused.exit_code == 2
    assert "4000x3000 pixels (750000 tokens, about" in refused.output
    assert "--working-size to 591 or less" in refused.output
    assert "--tile to 256 to restore it at full size in 252 tiles" in refused.output
    assert not phone.with_suffix(".restored.png").exists()
    done = aps("restore", phone, "--operator", "denoise", "--working-size", 96, *QUICK)
    assert done.exit_code == 0, done.output
    assert picture(phone.with_suffix(".restored.png")).shape == (3, 72, 96)


def test_the_working_size_that_is_advised_is_allowed(tmp_path):
    wide = tmp_path / "wide.png"
    Image.new("RGB", (2000, 3)).save(wide)
    command = ["restore", wide, "--operator", "super_resolution", "--factor", 8, "--device", "cpu"]
    assert "--working-size to 4096 or less" in aps(*command).output


def test_a_photo_is_restored_in_tiles_and_replayed(tmp_path):
    out, photo = tmp_path / "tiled.png", tmp_path / "wide.png"
    x = resize(picture(PHOTOS / "chelsea.png"), (61, 93)).clamp(-1, 1)
    photo.write_bytes(images.encode_png(x))
    done = aps("restore", photo, "--operator", "denoise", "--tile", 80, *QUICK, "-o", out)
    assert done.exit_code == 0, done.output
    assert "Restored in 2 overlapping tiles." in done.output
    sidecar = json.loads(out.with_suffix(".json").read_text())
    assert sidecar["spec"]["tile"] == 80
    assert sidecar["size"] == {"width": 93, "height": 61}
    again = aps("replay", out.with_suffix(".json"), photo, "-o", tmp_path / "again")
    assert again.exit_code == 0, again.output


def test_same_seed_same_bytes(photo, tmp_path):
    for name in ("a.png", "b.png"):
        assert (
            aps(
                "restore", photo, "--operator", "hdr", "--seed", 5, *QUICK, "-o", tmp_path / name
            ).exit_code
            == 0
        )
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_an_uploaded_mask_keeps_known_pixels(photo, tmp_path):
    mask = tmp_path / "mask.png"
    known = torch.ones(3, 31, 47)
    known[:, 10:20, 15:30] = -1
    mask.write_bytes(images.encode_png(known))
    assert "needs a mask" in aps("restore", photo, "--operator", "inpainting", *QUICK).output
    done = aps("restore", photo, "--operator", "inpainting", "--mask", mask, *QUICK)
    assert done.exit_code == 0, done.output


def test_degrade_writes_a_measurement(photo, tmp_path):
    out = tmp_path / "small.png"
    assert (
        aps(
            "degrade",
            photo,
            "--operator",
            "super_resolution",
            "--factor",
            "2",
            "--sigma",
            0,
            "-o",
            out,
        ).exit_code
        == 0
    )
    assert picture(out).shape == (3, 15, 23)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--operator", "super_resolution", "--factor", "3"],
            "Invalid value for '--factor': Input should be 2, 4 or 8. See 'aps restore --help'",
        ),
        (
            ["--operator", "hdr", "--factor", "4"],
            "--factor is not an option of operator 'hdr'; it applies to super_resolution",
        ),
        (["--operator", "hdr", "--sigma", "nan"], "Invalid value for '--sigma': "),
        (["--operator", "gaussian_blur", "--blur-sigma", "nan"], "value for '--blur-sigma': "),
        (["--operator", "hdr", "--num-samples", "99"], "Invalid value for '--num-samples': "),
        (
            ["--operator", "compose", "--stages", '[{"type": "super_resolution", "factor": 3}]'],
            "Invalid value for '--stages': 0.factor: Input should be 2, 4 or 8",
        ),
        (["--operator", "inpainting"], "send a --mask picture"),
        (
            ["--operator", "kernel_blur"],
            "send a --kernel picture, or its weights in --kernel-weights.",
        ),
        (
            ["--operator", "hdr", "--sigma", "much"],
            "number or Input should be 'auto'. See 'aps restore --help'.",
        ),
        (
            ["--operator", "hdr", "--working-size", "big"],
            "Invalid value for '--working-size': Input should be a valid integer",
        ),
        ([], "Missing option '--operator'. If you do not know what happened to the picture, add"),
        (["--operator", "fog"], "'fog' is not one of "),
        (["--operator", "hdr", "--sharpness", "3"], "No such option '--sharpness'"),
        (["--operator", "hdr", "--mask", "nowhere.png"], "File 'nowhere.png' does not exist"),
        (["--operator", "hdr", "--prior", "nonesuch"], "There is no prior 'nonesuch'; known: "),
        (
            ["--operator", "hdr", "--inner-steps", "-1"],
            "Invalid value for '--inner-steps': Input should be greater than or equal to 0",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(photo, arguments, words):
    result = aps("restore", photo, *arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert len(result.output.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--noise", "poisson", "--peak", peak] for peak in ("-5", "0", "nan", "inf", "1e7")),
        ["--sigma", "nan"],
    ],
)
def test_degrade_accepts_the_noise_that_restore_does(photo, arguments):
    result = aps("degrade", photo, "--operator", "denoise", *arguments)
    assert result.exit_code == 2
    assert f"Invalid value for '{arguments[-2]}': " in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_not_a_picture(tmp_path):
    text = tmp_path / "notes.png"
    text.write_text("hello")
    for command in ("restore", "degrade"):
        result = aps(command, text, "--operator", "hdr")
        assert result.exit_code == 2
        assert result.output.startswith(f"aps: {text}: ")
        assert "not a picture" in result.output
    photo, options = PHOTOS / "coffee.png", ("--operator", "inpainting", "--mask", text)
    assert f"aps: {text}: " in aps("restore", photo, *options, "-o", tmp_path / "a.png").output


def test_degrade_names_its_options(photo):
    for option in ("--blur-sigma", "--sigma"):
        result = aps("degrade", photo, "--operator", "gaussian_blur", option, "nan")
        assert f"Invalid value for '{option}': " in result.output


def test_eval_writes_tables_and_continues(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "coffee.png").write_bytes((PHOTOS / "coffee.png").read_bytes())
    command = [
        "eval",
        folder,
        "-o",
        tmp_path / "out",
        "--task",
        "sr4",
        "--operator",
        '{"type": "defocus_blur", "radius": 2}',
        "--method",
        "aps",
        "--set",
        "steps=2",
        "--set",
        "inner_steps=3",
    ]
    first = aps(*command)
    assert first.exit_code == 0, first.output
    table = (tmp_path / "out" / "per_image.csv").read_text()
    methods = ["ceiling", "input", "tv", "shrinkage", "wiener", "biharmonic", "aps"]
    lines = [line.split(",") for line in table.splitlines()[1:]]
    assert [line[4] for line in lines] == 2 * methods
    tasks = ["sr4", "defocus_blur-radius=2.0"]
    assert [line[1] for line in lines] == [task for task in tasks for _ in methods]
    assert "| sr4 |" in (tmp_path / "out" / "summary.md").read_text()
    assert (tmp_path / "out" / "contact_sheet.png").stat().st_size > 10_000
    assert aps(*command).exit_code == 0
    assert (tmp_path / "out" / "per_image.csv").read_text() == table
    assert "There is no task 'sr5'" in aps("eval", folder, "--task", "sr5").output
    assert "swirl" in aps("eval", folder, "--operator", "swirl").output


def test_eval_suite_runs_chosen_experiments(tmp_path):
    quick = [
        "--set",
        "steps=2",
        "--set",
        "inner_steps=2",
        "--size",
        64,
        "--limit",
        1,
        "--device",
        "cpu",
    ]
    result = aps(
        "eval", PHOTOS, "--suite", "paper", "--experiment", "steps", "-o", tmp_path, *quick
    )
    assert result.exit_code == 0, result.output
    assert (
        "[7 of at most 7," not in result.output
    )  # of five values of M two are 1 / 10 and 0 of 2: the same run
    assert (
        "| 50 (0.5 of the recommended) | 24.80 / 0.713 / 0.273 |"
        in (tmp_path / "report.md").read_text()
    )
    assert (
        "There is no experiment 'table9'"
        in aps("eval", PHOTOS, "--suite", "paper", "--experiment", "table9", *quick).output
    )
    assert (
        "--imagenet needs --imagenet-list"
        in aps("eval", PHOTOS, "--suite", "paper", "--imagenet", PHOTOS, *quick).output
    )
