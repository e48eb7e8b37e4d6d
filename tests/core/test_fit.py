"""The fit verdict on right and wrong operators."""

from pathlib import Path

import pytest
import torch

from aps_core.errors import SamplingCancelled
from aps_core.imaging import images, noise
from aps_core.operators import OperatorSpec
from aps_core.tasks import Inputs, RestoreSpec, run
from aps_core.tasks.results import PictureResult
from aps_core.verdict.fit import judge, round_trip, text_of, verdict_of
from tests.engines import image_engine

EXAMPLES = Path(__file__).parents[2] / "examples"
PICTURES = ("photos/hedgehog", "documents/page-play", "documents/scan-1650")


def operator(name, **fields):
    return OperatorSpec.named(name).model_validate({"type": name, **fields})


@pytest.fixture(scope="module")
def engine():
    return image_engine("embedded")


def truth(name, side=64):
    x = images.to_tensor(images.open_image((EXAMPLES / f"{name}.png").read_bytes()))
    return x[:, 90 : 90 + side, 90 : 90 + side].contiguous()


def judged(engine, x, true, assumed, sigma, result=None):
    y = true.bind(tuple(x.shape))(x[None])[0]
    y = noise.add_noise(y, sigma, torch.Generator().manual_seed(0))
    y = images.to_tensor(images.Picture(images.to_pil(y)))
    bound = assumed.bind(tuple(x.shape))
    result = x if result is None else result
    return judge(bound, assumed.words(), result, y, sigma, engine.prior.tokenizer)


RIGHT = [
    operator("gaussian_blur", sigma=1.5),
    operator("linear_motion_blur", length=7, angle=30),
    operator("denoise"),
]


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("true", RIGHT, ids=lambda each: each.type)
def test_the_truth_agrees_under_the_right_operator(engine, name, true):
    fit = judged(engine, truth(name), true, true, 0.03)
    assert fit.verdict == "agrees", fit
    assert fit.misfit == pytest.approx(0.03, rel=0.25)  # paper clips the noise
    assert "agrees with your picture" in fit.text


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize(
    ("true", "assumed"),
    [
        (operator("denoise"), operator("gaussian_blur", sigma=2.0)),
        (operator("gaussian_blur", sigma=0.8), operator("defocus_blur", radius=4.0)),
    ],
    ids=["sharp", "narrower"],
)
def test_a_wrong_operator_disagrees(engine, name, true, assumed):
    fit = judged(engine, truth(name), true, assumed, 0.01)
    assert fit.verdict == "disagrees", fit
    assert f"probably not {assumed.words()}" in fit.text


@pytest.mark.parametrize(
    ("turned", "verdict"), [(30, "agrees"), (75, "disagrees"), (120, "disagrees")]
)
def test_a_wrong_direction_of_a_movement_disagrees(engine, turned, verdict):
    """What lies outside the part is seen through the blur, and does not count."""
    path = EXAMPLES / "photos/hedgehog.png"
    x_CHW = images.to_tensor(images.open_image(path.read_bytes()))
    true, assumed = (operator("linear_motion_blur", length=9, angle=a) for a in (30, turned))
    whole_CHW = true.bind(tuple(x_CHW.shape))(x_CHW[None])[0]
    y_CHW = noise.add_noise(whole_CHW, 0.02, torch.Generator().manual_seed(0))[:, 80:176, 80:176]
    part_CHW = x_CHW[:, 80:176, 80:176].contiguous()
    bound = assumed.bind((3, 96, 96))
    fit = judge(bound, assumed.words(), part_CHW, y_CHW, 0.02, engine.prior.tokenizer)
    assert fit.verdict == verdict, fit
    assert verdict == "agrees" or f"probably not {assumed.words()}" in fit.text


def test_a_result_that_misses_the_picture_is_undecided_at_best(engine):
    x, right = truth(PICTURES[0]), RIGHT[0]
    fit = judged(engine, x, right, right, 0.03, torch.zeros_like(x))
    assert fit.verdict == "undecided"
    assert fit.ratio > 3
    assert "although the degradation is possible" in fit.text


def test_the_least_blur_is_never_preferred():
    """A weaker blur has the lower misfit; the verdict is the same, so it cannot rank operators."""
    assert verdict_of(0.2, 0.3) == verdict_of(0.9, 1.0) == "agrees"
    assert text_of(0.2, 0.3, "a") == text_of(0.9, 1.0, "b")


def test_the_tokenizer_error_is_part_of_the_floor(engine):
    x = truth(PICTURES[1])
    coded = round_trip(engine.prior.tokenizer, x)
    assert coded.shape == (1, *x.shape)
    error = (coded[0] - x).square().mean().sqrt().item()
    fit = judged(engine, x, RIGHT[2], RIGHT[2], 0.001)
    assert fit.tokenizer == pytest.approx(error, rel=1e-3)
    assert fit.noise == pytest.approx(0.001, rel=1e-3)
    assert fit.ratio == pytest.approx(fit.misfit / (0.01**2 + error**2) ** 0.5, rel=1e-3)


def test_the_result_of_a_task_has_a_verdict_and_can_be_stopped_while_judged(engine):
    x = truth(PICTURES[0], 32)
    spec = RestoreSpec.model_validate(
        {
            "operator": {"type": "gaussian_blur", "sigma": 3.0},
            "sampler": {"steps": 1, "inner_steps": 1},
        }
    )
    upload = Inputs(images.Picture(images.to_pil(x)))
    result = run(spec, upload, engine)
    assert isinstance(result, PictureResult)
    assert result.fit is not None
    assert result.fit.verdict == "disagrees"
    assert result.sidecar()["fit"] == result.metrics()["fit"] == result.fit.model_dump()
    calls = []

    def stop_late(info):
        calls.append(info)
        return info.iteration < 40

    with pytest.raises(SamplingCancelled):
        run(spec, upload, engine, on_inner=stop_late)
    assert calls[-1].iteration == 40
