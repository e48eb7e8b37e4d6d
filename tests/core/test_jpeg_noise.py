"""The noise that a picture had before JPEG rounded it, from the rounded coefficients."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from torch import Tensor

from aps_core.imaging import images, noise
from aps_core.imaging.jpeg_noise import noise_before_jpeg
from aps_core.imaging.noise_level import QUANTISATION
from aps_core.operators.gaussian_blur import GaussianBlur

EXAMPLES = Path(__file__).parents[2] / "examples"
FLAT = torch.linspace(-0.6, 0.6, 128).expand(3, 128, 128)


def photograph(name: str) -> Tensor:
    return images.to_tensor(images.open_image((EXAMPLES / f"{name}.png").read_bytes()))


def uploaded(x_CHW: Tensor, sigma: float, quality: int, mode: str = "RGB") -> images.Picture:
    noisy_CHW = noise.add_noise(x_CHW, sigma, torch.Generator().manual_seed(1))
    data = io.BytesIO()
    images.to_pil(noisy_CHW.clamp(-1, 1)).convert(mode).save(data, "JPEG", quality=quality)
    return images.open_image(data.getvalue())


def told(picture: images.Picture) -> float:
    assert picture.jpeg_steps is not None
    return noise_before_jpeg(np.asarray(picture.rgb()), picture.jpeg_steps)


@pytest.mark.parametrize("quality", [75, 85, 95])
@pytest.mark.parametrize("sigma", [0.05, 0.1])
@pytest.mark.parametrize("name", ["photos/castle", "photos/chelsea"])
def test_strong_noise_is_found_where_pixels_hide_it(name: str, sigma: float, quality: int) -> None:
    picture = uploaded(photograph(name), sigma, quality)
    assert told(picture) == pytest.approx(sigma, rel=0.3)
    if sigma < 0.1:
        assert noise.estimate_sigma(images.to_tensor(picture)) < sigma / 5, "why this is needed"
    assert noise.least_sigma(picture) == told(picture)
    assert noise.least_sigma(picture, 0.5) == told(picture) / 2


@pytest.mark.parametrize("quality", [90, 95])
def test_blurred_pictures_show_weak_noise_too(quality: int) -> None:
    x_CHW = photograph("photos/castle")
    y_CHW = GaussianBlur(sigma=1.5).bind((3, *x_CHW.shape[1:]))(x_CHW[None])[0]
    assert told(uploaded(y_CHW, 0.02, quality)) == pytest.approx(0.02, rel=0.2)
    assert told(uploaded(y_CHW, 0.0, quality)) < 0.01


def test_a_smooth_picture_without_noise_has_none() -> None:
    assert told(uploaded(FLAT, 0.0, 95)) < 2 * QUANTISATION


def test_grey_pictures_have_the_noise_of_their_brightness() -> None:
    grey_CHW = FLAT + 0.05 * torch.randn(128, 128, generator=torch.Generator().manual_seed(0))
    assert told(uploaded(grey_CHW, 0.0, 90, "L")) == pytest.approx(0.05, rel=0.15)


def test_blocks_off_the_file_s_grid_tell_nothing() -> None:
    picture = uploaded(photograph("photos/castle"), 0.05, 75)
    cut = np.asarray(picture.rgb())[3:, 5:]
    assert picture.jpeg_steps is not None
    assert noise_before_jpeg(cut, picture.jpeg_steps) == 0


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_tables_of_any_kind_and_pictures_on_their_sides_tell(orientation: int) -> None:
    """As phones make them."""
    x_CHW = photograph("photos/castle")
    noisy_CHW = noise.add_noise(x_CHW, 0.05, torch.Generator().manual_seed(1)).clamp(-1, 1)
    steps = [4 + row // 2 + 2 * column for row in range(8) for column in range(8)]
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    data = io.BytesIO()
    images.to_pil(noisy_CHW).save(data, "JPEG", qtables=[steps, steps], exif=exif)
    assert told(images.open_image(data.getvalue())) == pytest.approx(0.05, rel=0.2)


@pytest.mark.parametrize("size", [(1, 1), (7, 200), (16, 16)])
def test_small_pictures_tell_nothing(size: tuple[int, int]) -> None:
    data = io.BytesIO()
    Image.new("RGB", size, (120, 90, 60)).save(data, "JPEG", quality=80)
    assert told(images.open_image(data.getvalue())) == 0
