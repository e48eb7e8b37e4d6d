"""``import aps_core as aps``: what it exports, and restoring with one's own operator, prior and
sampler.
"""

import ast
import importlib.util
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from torch import nn

import aps_core as aps
from aps_core.errors import InvalidSpec
from aps_core.imaging import images
from aps_core.imaging.picture_like import picture
from aps_core.restoration.layout import Layout
from aps_core.restoration.observation import Observation

ROOT = Path(__file__).parents[2]
PHOTO = ROOT / "examples/photos/coffee.png"


def example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def prior():
    return example("own_prior").Neighbours()


SETTINGS = {"type": "aps", "steps": 3, "inner_steps": 12}
LOSS = {"type": "measurement", "perceptual_weight": 0.0}


def restored(prior, measurement, **options):
    return aps.restore(measurement, prior, **{"sampler": SETTINGS, "loss": LOSS, **options})


def observed(measurement):
    layout = Layout(operator=measurement.spec, upload=measurement.pixels, stride=8)
    return Observation.of(measurement, layout, torch.device("cpu"))


@pytest.fixture(scope="module")
def truth():
    return picture(PHOTO)[:, :32, :24].clamp(-1, 1)


# -- the names ------------------------------------------------------------------------------------


def test_lazy_names_are_those_a_type_checker_sees():
    tree = ast.parse((ROOT / "aps_core/__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    statements = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert len(statements) == len(block.body)
    typed = {
        (node.module.removeprefix("aps_core."), alias.name)
        for node in statements
        for alias in node.names
    }
    assert typed == {(home, name) for home, names in aps._HOMES.items() for name in names}
    assert sorted(aps.__all__) == sorted(name for _, name in typed)
    for name in aps.__all__:
        assert getattr(aps, name) is not None
    with pytest.raises(AttributeError, match="nonesuch"):
        _ = aps.nonesuch


def test_importing_changes_nothing_and_loads_nothing_heavy():
    code = (
        "import os, sys; before = dict(os.environ); import aps_core; assert dict(os.environ) =="
        " before; assert not {'torch', 'numpy', 'pydantic', 'PIL'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_loading_a_prior_leaves_the_process_as_it_is():
    code = (
        "import os, torch, aps_core as aps; before = dict(os.environ), torch.get_num_threads();"
        " aps.load_prior('embedded', 'cpu'); assert (dict(os.environ), torch.get_num_threads()) =="
        " before; assert not torch.are_deterministic_algorithms_enabled()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


# -- operators ------------------------------------------------------------------------------------


class Physics:
    """The documented interface of ``deepinv.physics.Physics``: pictures in [0, 1]."""

    class noise_model:
        sigma = torch.tensor(0.05)

    img_size = (3, 32, 24)

    def A(self, x, **_):
        return x.flatten(1)[:, ::2]

    def __call__(self, x, **_):
        raise AssertionError("adds noise")


def test_any_kind_of_operator_is_followed(prior, truth):
    mean = nn.AvgPool2d(2)
    kinds: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "function": (lambda x: mean(x), mean(truth[None]), {"size": (32, 24)}),
        "module": (mean, mean(truth), {"size": (32, 24)}),
        "name": ("denoise", truth, {}),
        "json": ({"type": "super_resolution", "factor": 2}, mean(truth), {}),
        "physics": (Physics(), Physics().A((truth[None] + 1) / 2), {"sigma": "auto"}),
    }
    for kind, (operator, y, more) in kinds.items():
        result = restored(prior, aps.Measurement(y, operator, **{"sigma": 0.05, **more}))
        assert result.pictures_BCHW.shape == (1, 3, 32, 24), kind
        blind = restored(
            prior, aps.Measurement(y, operator, **{"sigma": 0.05, **more}), sampler="prior_only"
        )
        assert result.misfit_B[0] < 0.8 * blind.misfit_B[0], kind


def test_physics_of_deepinv_itself_are_followed():
    command = [sys.executable, "-m", "tests.core.deepinv_physics"]
    done = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=600
    )
    assert len(done.stdout.splitlines()) == 4


def test_what_cannot_be_told_is_refused(prior, truth):
    halves = nn.AvgPool2d(2)
    with pytest.raises(InvalidSpec, match=r"size=\(height, width\)"):
        restored(prior, aps.Measurement(halves(truth), halves, sigma=0.1))
    with pytest.raises(InvalidSpec, match="set 'sigma'"):
        restored(
            prior, aps.Measurement(torch.zeros(1, 5), lambda x: x.flatten(1)[:, :5], size=(8, 8))
        )
    with pytest.raises(InvalidSpec, match="'embedded_text' makes text"):
        aps.restore(aps.Measurement(truth, sigma=0.1), aps.load_prior("embedded_text", "cpu"))
    with pytest.raises(InvalidSpec, match=r"'gaussian_blur': radius: Extra inputs .*given: 2"):
        aps.restore(aps.Measurement(truth, {"type": "gaussian_blur", "radius": 2}))
    with pytest.raises(InvalidSpec, match=r"has \(16, 16, 3\); .* \(3, height, width\)"):
        aps.restore(aps.Measurement(torch.zeros(16, 16, 3)))
    with pytest.raises(InvalidSpec, match="There is no sampler 'magic'"):
        restored(prior, aps.Measurement(truth, sigma=0.1), sampler="magic")
    with pytest.raises(InvalidSpec, match="this is int"):
        restored(prior, aps.Measurement(3))  # type: ignore[arg-type]


def test_an_operator_that_fails_says_why(prior, truth):
    with pytest.raises(InvalidSpec, match="size of tensor") as caught:
        restored(prior, aps.Measurement(truth, lambda x: x + torch.zeros(3, 5, 5), sigma=0.1))
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_bound_operator_keeps_its_weight(prior, truth):
    known = torch.zeros(1, 1, 32, 24)
    known[..., 16:] = 1
    bound = aps.Bound(lambda x: x * known, weight=known)
    assert observed(aps.Measurement(truth, bound, sigma=0.1)).bound.weight is known
    assert observed(aps.Measurement(truth, bound.unclipped, sigma=0.1)).bound.weight is None


# -- pictures in, pictures out --------------------------------------------------------------------


def test_pictures_are_taken_in_every_form(tmp_path, truth):
    image = images.to_pil(truth)
    image.save(tmp_path / "a.png")
    same = picture(image)
    for given in (
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        np.asarray(image),
        same,
        same.numpy(),
    ):
        assert torch.equal(picture(given), same)
    assert (same - truth).abs().max() < 1 / 127


def test_a_pil_image_is_read_like_its_file(tmp_path):
    turned = Image.new("RGBA", (24, 32), "red")
    turned.paste((0, 0, 255, 0), (0, 0, 24, 16))  # a transparent blue half
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    turned.save(tmp_path / "turned.png", exif=exif)
    measured = [
        observed(aps.Measurement(given, "inpainting", sigma=0.1))
        for given in (tmp_path / "turned.png", Image.open(tmp_path / "turned.png"))
    ]
    for each in measured:
        assert each.y_BCHW.shape == (1, 3, 24, 32)
        assert each.bound.weight[0, 0, 0].tolist() == [1] * 16 + [0] * 16
    assert torch.equal(measured[0].y_BCHW, measured[1].y_BCHW)


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (None, {}, "takes a Measurement"),
        ({"sigma": -1}, {}, "'sigma' is"),
        ({"sigma": float("nan")}, {}, "'sigma' is"),
        ({"sigma": "foo"}, {}, "'sigma' is"),
        ({"sigma": None}, {}, "'sigma' is"),
        ({"mask": np.ones((32, 24))}, {}, "'denoise' takes no mask"),
        ({"size": (9, 9)}, {}, "leave 'size' out"),
        ({}, {"samples": 0}, "'samples' is a whole number from 1"),
        ({}, {"seed": True}, "'seed' is a whole number from 0"),
        ({}, {"seed": 2**64}, "'seed' is a whole number from 0"),
        ({}, {"seed": "x"}, "'seed' is a whole number from 0"),
        ({"operator": None}, {}, "not None"),
        ({"operator": lambda x: 5}, {}, "The operator returned int"),
        ({"y": np.zeros((3, 8, 8), np.uint8)}, {}, "An 8-bit array is"),
        ({"y": torch.zeros(3, 0, 0)}, {}, "'y' has no values"),
        ({"y": 255 * torch.rand(3, 32, 24)}, {}, "'y' has values up to"),
    ],
)
def test_what_a_caller_gets_wrong_is_named(prior, truth, given, options, said):
    measurement = truth if given is None else aps.Measurement(**{"y": truth, **given})
    with pytest.raises(InvalidSpec, match=said):
        restored(prior, measurement, **options)


@pytest.mark.parametrize("shape", [(1, 32, 24), (4, 32, 24), (32, 24)])
def test_measurements_that_the_operator_does_not_make_are_refused(prior, shape):
    with pytest.raises(InvalidSpec, match=r"makes measurements of\s+shape|fails for a picture"):
        restored(prior, aps.Measurement(np.zeros(shape, np.float32), "denoise", sigma=0.05))


def test_a_seed_may_be_one_of_numpy_s(prior, truth):
    same = [restored(prior, aps.Measurement(truth, sigma=0.05), seed=s) for s in (3, np.int64(3))]
    assert torch.equal(same[0].codes_BL, same[1].codes_BL)


@pytest.mark.parametrize(
    "operator",
    ["colorize", {"type": "compose", "stages": [{"type": "colorize"}, {"type": "denoise"}]}],
)
def test_coloured_measurements_become_grey_where_colour_is_removed(truth, operator):
    grey = observed(aps.Measurement(truth, operator, sigma=0.05))
    red, green, blue = grey.y_BCHW.unbind(1)
    torch.testing.assert_close(red, green)
    torch.testing.assert_close(red, blue)
    torch.testing.assert_close(grey.bound(truth[None]), grey.y_BCHW)


@pytest.mark.parametrize("operator", ["gaussian_blur", {"type": "gaussian_blur"}])
def test_the_verdict_names_the_operator(prior, operator):
    noise = 2 * torch.rand(3, 32, 24, generator=torch.Generator().manual_seed(0)) - 1
    result = restored(prior, aps.Measurement(noise, operator, sigma=0.01))
    assert "a Gaussian blur of 3 pixels" in result.fit.text


def test_the_result_holds_the_loss_that_was_used_and_its_caveats(prior, truth):
    loss = {"type": "measurement", "perceptual": "auto", "perceptual_weight": 1e-3}
    result = restored(prior, aps.Measurement(truth, sigma=0.05), loss=loss)
    assert result.loss.perceptual == "tokenizer"
    assert "not of VGG16" in result.notes[0]
    photographs = aps.load_prior("embedded_photographs", "cpu")
    result = restored(photographs, aps.Measurement(truth, sigma=0.05))
    assert "its restorations are much worse" in result.notes[0]


def test_what_is_no_prior_is_refused(truth):
    prior: Any = 5
    with pytest.raises(InvalidSpec, match="'prior' is a prior or the name of one, not 5"):
        aps.restore(aps.Measurement(truth, sigma=0.05), prior)


def test_pictures_on_another_scale_are_noted(prior, truth):
    assert restored(prior, aps.Measurement(truth, sigma=0.05)).notes == []
    note = restored(prior, aps.Measurement((truth + 1) / 2, sigma=0.05)).notes[0]
    assert "pictures are in [-1, 1]" in note


def test_a_batch_is_several_samples_of_several_measurements(prior, truth):
    both = torch.stack([truth, -truth])
    result = restored(prior, aps.Measurement(both, sigma=0.05), samples=2)
    assert result.pictures_BCHW.shape == (4, 3, 32, 24)
    near = (result.pictures_BCHW[:, None] - both[None]).square().mean((2, 3, 4))
    assert near.argmin(1).tolist() == [0, 0, 1, 1]
    alone = [restored(prior, aps.Measurement(x_CHW, sigma=0.05)) for x_CHW in both]
    together = restored(prior, aps.Measurement(both, sigma=0.05))
    assert torch.equal(together.codes_BL, torch.cat([each.codes_BL for each in alone]))


def test_measurements_of_a_batch_hardly_disturb_each_other(truth):
    """They share the steps of their optimiser, but not the colours that fill their holes, and no
    noise is added, as it is to several samples.
    """
    pages = aps.load_prior("embedded_documents", "cpu")
    seen = torch.ones(32, 24)
    seen[8:24, 6:18] = 0
    both = torch.stack([truth, -truth])
    quick = {"type": "plug_and_play", "steps": 2, "inner_steps": 40, "first_steps": 40}

    def filled(y):
        known = Image.fromarray((255 * seen).byte().numpy())
        measurement = aps.Measurement(y * seen, "inpainting", sigma=0.05, mask=known)
        return aps.restore(measurement, pages, sampler=quick).pictures_BCHW

    alone = torch.cat([filled(x_CHW) for x_CHW in both])
    assert (filled(both) - alone).square().mean().sqrt() < 0.03
    assert (alone[0] - alone[1]).square().mean().sqrt() > 0.3


@pytest.mark.parametrize("sigma", [0.0, torch.zeros(1)])
def test_a_measurement_without_noise_is_reproduced(truth, sigma):
    pages = aps.load_prior("embedded_documents", "cpu")
    result = aps.restore(aps.Measurement(truth, "denoise", sigma=sigma), pages)
    assert (result.pictures_BCHW[0] - truth).square().mean().sqrt() < 0.02


@pytest.mark.parametrize(
    ("name", "options", "chosen"),
    [
        ("photos/coffee.png", {}, "embedded_denoiser"),
        ("documents/page-karla.png", {}, "embedded_documents"),
        ("documents/page-karla.png", {"prompt": "a page"}, "embedded"),
        (
            "documents/page-karla.png",
            {"sampler": {"type": "aps", "steps": 1, "inner_steps": 1}},
            "embedded",
        ),
    ],
)
def test_the_prior_is_that_of_what_the_measurement_shows(name, options: Any, chosen):
    part = Image.open(ROOT / "examples" / name).convert("RGB").crop((20, 20, 84, 84))
    result = aps.restore(aps.Measurement([part], "denoise"), preset="fast", **options)
    assert result.prior == chosen


def test_an_operator_of_one_s_own_gets_the_prior_for_any_picture_but_for_pages(truth):
    halved = aps.Measurement(truth, lambda x_BCHW: 0.5 * x_BCHW, sigma=0.05)
    flat = aps.Measurement(torch.zeros(1, 32, 24), lambda x_BCHW: x_BCHW[:, :1], 0.05, (32, 24))
    assert aps.restore(halved, preset="fast").prior == "embedded"
    assert aps.restore(flat, preset="fast").prior == "embedded"
    page = (
        Image.open(ROOT / "examples/documents/page-karla.png").convert("RGB").crop((0, 0, 64, 64))
    )
    darker = aps.Measurement(page, lambda x_BCHW: 0.5 * x_BCHW, sigma=0.05)
    assert aps.restore(darker, preset="fast").prior == "embedded_documents"


def test_values_that_are_no_numbers_are_refused(prior, truth):
    with pytest.raises(InvalidSpec, match="NaN or infinite"):
        restored(prior, aps.Measurement(truth.where(truth < 0.5, torch.nan), sigma=0.05))


def test_a_notebook_shows_the_result(prior, truth):
    result = restored(prior, aps.Measurement(truth, sigma=0.05), samples=2)
    assert Image.open(io.BytesIO(result._repr_png_())).size == (24 * 2 + 4, 32)
    assert "not evidence" in result._repr_html_()
    assert result.image.size == (24, 32)
    assert len(result.images) == 2


@pytest.mark.parametrize("name", ["aps", "aps_i", "g2d2", "sgdd", "svdd", "random_order"])
def test_every_sampler_is_a_name_away(prior, truth, name):
    settings = {"steps": 2, "sgdd": 0}
    chosen = {"g2d2": {"inner_steps": 3}, "sgdd": {"mh_steps": 3}, "svdd": {"candidates": 3}}
    sampler = {"type": name, "steps": settings["steps"], **chosen.get(name, {"inner_steps": 3})}
    once = restored(prior, aps.Measurement(truth, sigma=0.05), sampler=sampler, seed=3)
    again = restored(prior, aps.Measurement(truth, sigma=0.05), sampler=sampler, seed=3)
    assert torch.equal(once.codes_BL, again.codes_BL)
    assert once.sampler.type == name


# -- the examples ---------------------------------------------------------------------------------


def test_the_examples_run(tmp_path):
    small = {"own_operator": {"steps": 1, "inner_steps": 1}, "own_prior": {}}
    for name, settings in small.items():
        result = example(name).main(PHOTO, tmp_path / f"{name}.png", **settings)
        assert result.image.size == (64, 64)
        assert (tmp_path / f"{name}.png").stat().st_size > 500
    truth = picture(PHOTO)[:, :64, :64]
    assert (
        result.pictures_BCHW[0] - truth
    ).square().mean() < 0.75 * truth.var()  # codes alone: 0.3


def test_the_own_sampler_runs_in_a_process_of_its_own(tmp_path):
    images.to_pil(picture(PHOTO)[:, :32, :32]).save(tmp_path / "photo.png")
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'examples')!r}); import own_sampler;"
        " from pathlib import Path; own_sampler.main(Path('photo.png'),"
        " Path('out.png'), steps=2)"
    )
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT / 'examples')!r}); {code}",
        ],
        cwd=tmp_path,
        check=True,
        timeout=120,
    )
    with Image.open(tmp_path / "out.png") as made:
        assert made.size == (32, 32)


def test_masks_and_pictures_of_any_documented_kind(prior):
    """An alpha channel in a list of one, a mask without channels, an array with one channel."""
    rgba = Image.new("RGBA", (24, 32), (90, 120, 150, 255))
    rgba.paste((0, 0, 0, 0), (4, 4, 12, 12))
    flat = torch.ones(32, 24)
    flat[4:12, 4:12] = -1
    grey = np.full((32, 24, 1), 120, dtype=np.uint8)
    sigma: Any = np.float32(0.05)  # no float, unlike numpy's float64
    for measurement in (
        aps.Measurement([rgba], "inpainting", sigma=0.05),
        aps.Measurement(rgba.convert("RGB"), "inpainting", sigma=0.05, mask=flat),
        aps.Measurement(grey, "denoise", sigma=sigma),
    ):
        assert restored(prior, measurement).pictures_BCHW.shape == (1, 3, 32, 24)


def test_noise_of_several_measurements_is_that_of_all_their_samples(prior, truth):
    both = torch.stack([truth, truth])
    sigma = torch.tensor([0.05, 0.2]).view(2, 1, 1, 1)
    result = restored(prior, aps.Measurement(both, "denoise", sigma=sigma), samples=2)
    assert result.pictures_BCHW.shape == (4, 3, 32, 24)
