"""Several samples of the embedded prior: they agree where pixels are known and differ elsewhere."""

from pathlib import Path
from typing import Any

import pytest

from aps_core.errors import InvalidSpec, WeightsMissing
from aps_core.imaging import images
from aps_core.tasks import Inputs, RestoreSpec, run
from tests.engines import image_engine

PHOTO = Path(__file__).parents[2] / "examples" / "photos" / "coffee.png"
QUICK = {"steps": 6, "inner_steps": 12}


@pytest.fixture(scope="module")
def engine():
    return image_engine("embedded")


@pytest.fixture(scope="module")
def photo():
    return images.Picture(images.open_image(PHOTO.read_bytes()).image.resize((64, 64)))


def test_samples_differ_inside_a_masked_block_and_agree_outside(engine, photo):
    box = {
        "type": "inpainting",
        "mask": "box",
        "top": 0.25,
        "left": 0.25,
        "height": 0.5,
        "width": 0.5,
    }
    result: Any = run(
        RestoreSpec(operator=box, sigma=0.0, num_samples=4, sampler=QUICK), Inputs(photo), engine
    )
    known = result.drawn["mask"].reshape(64, 64) > 0
    spread = result.spread_HW()
    inside, outside = float(spread[20:44, 20:44].mean()), float(spread[known].mean())
    assert inside > 2.5 * outside, (inside, outside)
    assert result.misfit_B[result.best] == min(result.misfit_B)
    assert len(result.misfit_curve) == QUICK["steps"]


def test_missing_weights_are_named_before_any_computation(engine, photo, monkeypatch, tmp_path):
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))
    spec = RestoreSpec(
        operator={"type": "compose", "stages": [{"type": "nonlinear_blur"}, {"type": "jpeg"}]},
        loss={"perceptual": "vgg16", "perceptual_weight": 1e-3},
    )
    assert spec.checkpoints == ("kernelwizard", "vgg16")
    assert (
        RestoreSpec(
            operator={"type": "jpeg"}, loss={"perceptual": "vgg16", "perceptual_weight": 0}
        ).checkpoints
        == ()
    )
    with pytest.raises(WeightsMissing, match="aps weights fetch kernelwizard"):
        run(spec, Inputs(photo), engine, lambda _: pytest.fail("a step was computed"))


@pytest.mark.parametrize(
    ("level", "words"), [(0, "covers the whole picture"), (255, "covers nothing")]
)
def test_a_mask_must_have_known_and_unknown_pixels(photo, level, words):
    spec = RestoreSpec(operator={"type": "inpainting", "mask": "upload"})
    mask = images.Picture(photo.image.convert("L").point(lambda _: level))
    with pytest.raises(InvalidSpec, match=words):
        spec.check_inputs(Inputs(photo, mask))
