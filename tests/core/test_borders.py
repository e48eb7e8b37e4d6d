"""Blurred pictures whose blur mixed in what lies beyond their border, as in every photograph."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

import aps_core as aps
from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.metrics import psnr
from aps_core.imaging import images
from aps_core.imaging.noise import add_noise
from aps_core.operators import OperatorSpec
from aps_core.samplers.plug_and_play import PlugAndPlay
from aps_core.tasks import Inputs, RestoreSpec, run
from aps_core.tasks.estimate import estimate
from aps_core.tasks.progress import PictureProgress, Progress
from aps_core.tasks.results import PictureResult
from aps_core.types import InnerInfo, StepInfo
from tests.engines import image_engine

PHOTO = Path(__file__).parents[2] / "examples/photos/motorcycle.png"
BLUR = {"type": "defocus_blur", "radius": 3.0}
PRIOR = "embedded_photographs"


def whole_and_blurred(side: int = 64) -> tuple[Tensor, Tensor]:
    """A part of a photograph, and the same part of the blurred photograph."""
    cut = (..., slice(60, 60 + side), slice(100, 100 + side))
    x_CHW = images.to_tensor(images.open_image(PHOTO.read_bytes()))
    blur = OperatorSpec.named("defocus_blur").model_validate(BLUR)
    seen_CHW = blur.bind((3, *x_CHW.shape[1:]))(x_CHW[None])[0]
    noisy_CHW = add_noise(seen_CHW, 0.02, torch.Generator().manual_seed(0))
    return x_CHW[cut], noisy_CHW[cut]


@pytest.mark.parametrize(
    "operator",
    [
        BLUR,
        {"type": "compose", "stages": [BLUR, {"type": "super_resolution", "factor": 2}]},
        {"type": "compose", "stages": [BLUR, {"type": "jpeg", "quality": 90}]},
    ],
)
def test_a_wide_operator_measures_a_part_as_the_whole_was_measured(operator):
    spec = OperatorSpec.named(operator["type"]).model_validate(operator)
    beyond = spec.beyond(stride=4)
    assert beyond % 4 == 0
    assert beyond >= 3
    scale = spec.image_shape((3, 1, 1))[1]
    x_CHW = images.to_tensor(images.open_image(PHOTO.read_bytes()))[:, :160, :160]
    y_BCHW = spec.bind((3, 160, 160))(x_CHW[None])
    start = -(-beyond // 16) * 16
    part = x_CHW[
        None, :, start - beyond : start + 64 + beyond, start - beyond : start + 64 + beyond
    ]
    found = spec.bind_wide((3, 64, 64), beyond)(part)
    first, side = start // scale, 64 // scale
    expected = y_BCHW[..., first : first + side, first : first + side]
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)


@pytest.fixture(scope="module")
def engine() -> ImageEngine:
    return image_engine(PRIOR)


def test_light_from_beyond_the_border_is_explained_beyond_it(engine, monkeypatch):
    truth_CHW, y_CHW = whole_and_blurred()
    spec = RestoreSpec(operator=BLUR, prior=PRIOR, sigma=0.02)
    inputs = Inputs(images.Picture(images.to_pil(y_CHW)))
    seen: list[Progress] = []
    wide = run(spec, inputs, engine, on_step=seen.append)
    monkeypatch.setattr(PlugAndPlay, "beyond_borders", False)
    reflected = run(spec, inputs, engine)
    assert isinstance(wide, PictureResult)
    assert isinstance(reflected, PictureResult)
    scores = [float(psnr(result.pictures_BCHW, truth_CHW[None])) for result in (wide, reflected)]
    assert scores[0] > scores[1] + 1.5, scores
    assert wide.pictures_BCHW.shape == truth_CHW[None].shape
    assert wide.misfit_B[0] < 1.2 * wide.noise_floor < reflected.misfit_B[0]
    for progress in seen:
        assert isinstance(progress, PictureProgress)
        assert progress.info.x_hat_BCHW.shape[-2:] == (64, 64)
        assert progress.event()["grid"] == (64, 64)


def test_tiles_extend_beyond_the_border_too(engine, monkeypatch):
    truth_CHW, y_CHW = whole_and_blurred(112)
    inputs = Inputs(images.Picture(images.to_pil(y_CHW)))
    border = torch.ones(112, 112, dtype=torch.bool)
    border[8:-8, 8:-8] = False

    def score(tile: int | None) -> float:
        spec = RestoreSpec(operator=BLUR, prior=PRIOR, sigma=0.02, preset="fast", tile=tile)
        result = run(spec, inputs, engine)
        assert isinstance(result, PictureResult)
        assert result.pictures_BCHW.shape == truth_CHW[None].shape
        assert result.deviation_BHW is not None
        assert result.deviation_BHW[0].shape == border.shape
        assert bool(result.notes) == (tile is not None)
        return float(psnr(result.pictures_BCHW.float() * border, truth_CHW[None] * border))

    whole, tiled = score(None), score(96)
    monkeypatch.setattr(PlugAndPlay, "beyond_borders", False)
    reflected = score(96)
    assert tiled > whole - 0.2, (whole, tiled)
    assert tiled > reflected + 1, (tiled, reflected)


def test_the_library_restores_the_same(engine):
    _, y_CHW = whole_and_blurred()
    upload = images.to_pil(y_CHW)
    job = run(
        RestoreSpec(operator=BLUR, prior=PRIOR, sigma=0.02), Inputs(images.Picture(upload)), engine
    )
    assert isinstance(job, PictureResult)
    shapes: set[tuple[int, ...]] = set()

    def step(info: StepInfo) -> None:
        shapes.add(tuple(info.x_hat_BCHW.shape))

    def inner(info: InnerInfo) -> None:
        if info.picture is not None:
            shapes.add(tuple(info.picture().shape))

    measured = aps.Measurement(upload, operator=BLUR, sigma=0.02)
    restored = aps.restore(measured, engine, on_step=step, on_inner=inner)
    assert shapes == {(1, 3, 64, 64)}
    torch.testing.assert_close(restored.pictures_BCHW, job.pictures_BCHW)


def test_pixels_beyond_the_border_count_as_work_and_not_as_size():
    spec = RestoreSpec(operator=BLUR, prior=PRIOR)
    cost = estimate(spec, (64, 64), 1e-6)
    without = estimate(
        spec.model_copy(
            update={"operator": OperatorSpec.named("denoise").model_validate({"type": "denoise"})}
        ),
        (64, 64),
        1e-6,
    )
    assert cost.output == cost.sampled == (64, 64)
    assert cost.tokens == 70 * 70
    assert without.tokens == 64 * 64
