"""The rounding of an uploaded JPEG counts as noise, whatever operator the caller names."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from aps_core import Measurement, restore
from aps_core.engines.engine import ImageEngine
from aps_core.identify.kinds.auto import Auto
from aps_core.identify.search import Search
from aps_core.imaging import images, noise
from aps_core.operators import OperatorSpec
from aps_core.operators.compose import AVERAGED, STORED, Compose, as_stored
from aps_core.operators.denoise import Denoise
from aps_core.operators.gaussian_blur import GaussianBlur
from aps_core.operators.inpainting import Inpainting
from aps_core.operators.jpeg import JPEG
from aps_core.operators.motion_blur import MotionBlur
from aps_core.tasks import Inputs, PictureResult, RestoreSpec, run
from tests.engines import image_engine

PHOTO = Path(__file__).parents[2] / "examples/photos/castle.png"
BEYOND = 16
"""Pixels around the upload, whose light the blur mixes in."""
BLUR = GaussianBlur(sigma=1.5)


@pytest.fixture(scope="module")
def engine() -> ImageEngine:
    return image_engine("embedded_photographs")


@pytest.fixture(scope="module")
def truth() -> Tensor:
    return images.to_tensor(images.open_image(PHOTO.read_bytes()))[:, 64:192, 64:192]


def compressed(x_CHW: Tensor, quality: int) -> bytes:
    """A blurred, noisy picture as a JPEG."""
    y_CHW = BLUR.bind((3, 128, 128))(x_CHW[None])[0, :, BEYOND:-BEYOND, BEYOND:-BEYOND]
    noisy_CHW = noise.add_noise(y_CHW, 0.02, torch.Generator().manual_seed(0))
    data = io.BytesIO()
    images.to_pil(noisy_CHW).save(data, "JPEG", quality=quality)
    return data.getvalue()


def psnr(x_CHW: Tensor, truth_CHW: Tensor) -> float:
    error_CHW = x_CHW - truth_CHW[:, BEYOND:-BEYOND, BEYOND:-BEYOND]
    return float(10 * (4 / error_CHW[:, 8:-8, 8:-8].square().mean()).log10())


@pytest.mark.parametrize(
    ("operator", "quality", "expected"),
    [
        (BLUR, 80, Compose(stages=[BLUR, JPEG(quality=80)])),
        (Denoise(), 80, JPEG(quality=80)),
        (BLUR, None, BLUR),
        (BLUR, 97, BLUR),
        (Compose(stages=[BLUR, JPEG(quality=30)]), 80, Compose(stages=[BLUR, JPEG(quality=30)])),
        (Inpainting(mask="upload"), 80, Inpainting(mask="upload")),
        (Auto(), 80, Auto()),
        (Compose(stages=[MotionBlur()] * 4), 80, Compose(stages=[MotionBlur()] * 4)),
    ],
)
def test_the_compression_follows_what_the_caller_names(
    operator: OperatorSpec, quality: int | None, expected: OperatorSpec
) -> None:
    assert as_stored(operator, quality) == expected


def test_a_job_takes_the_rounding_of_an_uploaded_jpeg_for_noise(
    engine: ImageEngine, truth: Tensor
) -> None:
    upload = images.open_image(compressed(truth, 70))
    bare = images.Picture(upload.image)
    spec: dict[str, Any] = {"operator": BLUR, "prior": "embedded_photographs", "preset": "fast"}
    results = [run(RestoreSpec(**spec), Inputs(each), engine) for each in (upload, bare)]
    told, untold = results
    assert isinstance(told, PictureResult)
    assert isinstance(untold, PictureResult)
    assert psnr(told.pictures_BCHW[0], truth) > psnr(untold.pictures_BCHW[0], truth) + 1
    assert any("JPEG of quality 70: its rounding counts as noise" in note for note in told.notes)
    assert not any("JPEG" in note for note in untold.notes)


def test_a_jpeg_that_is_reduced_is_averaged(engine: ImageEngine, truth: Tensor) -> None:
    upload = images.open_image(compressed(truth, 70))
    spec = RestoreSpec(
        operator=BLUR, prior="embedded_photographs", preset="fast", working_size=48, sigma=0.05
    )
    result = run(spec, Inputs(upload), engine)
    assert not any("JPEG" in note for note in result.notes)


def test_a_named_compression_is_dropped_where_a_reduction_averages_it(
    engine: ImageEngine, truth: Tensor
) -> None:
    data = io.BytesIO()
    images.to_pil(truth).save(data, "JPEG", quality=60)
    upload = images.open_image(data.getvalue())
    spec = RestoreSpec(operator=JPEG(quality=60), prior="embedded_photographs", working_size=64)
    result, plain = (
        run(each, Inputs(upload), engine)
        for each in (spec, spec.model_copy(update={"operator": Denoise()}))
    )
    assert isinstance(result, PictureResult)
    assert isinstance(plain, PictureResult)
    assert torch.equal(result.pictures_BCHW, plain.pictures_BCHW)
    assert AVERAGED in result.notes
    assert AVERAGED not in plain.notes
    assert Auto().find(Search(upload, working_size=64)).operator == Denoise()
    assert Auto().find(Search(upload, working_size=65)).operator == JPEG(quality=60)


def test_the_library_does_so_for_files_and_pil_images(
    tmp_path: Path, engine: ImageEngine, truth: Tensor
) -> None:
    path = tmp_path / "blurred.jpg"
    path.write_bytes(compressed(truth, 70))
    results = [
        restore(Measurement(y, BLUR), engine, preset="fast")
        for y in (path, Image.open(path), images.to_tensor(images.open_image(path.read_bytes())))
    ]
    from_path, from_pil, from_pixels = (result.pictures_BCHW[0] for result in results)
    assert results[0].notes == results[1].notes == [STORED.format(70)]
    assert results[2].notes == []
    named = restore(Measurement(path, JPEG(quality=70)), engine, preset="fast")
    assert STORED.format(70) not in named.notes
    assert torch.equal(from_path, from_pil)
    assert psnr(from_path, truth) > psnr(from_pixels, truth) + 1
