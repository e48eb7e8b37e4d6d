"""Strength of added noise, and noise estimation on photographs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from aps_core.imaging import images
from aps_core.imaging.noise import (
    add_noise,
    add_poisson,
    estimate_sigma,
    poisson_sigma,
)
from aps_core.imaging.resampling import resize
from aps_core.losses.measurement import MeasurementLoss
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import Bound, OperatorSpec
from aps_core.operators.compose import Compose
from aps_core.operators.gaussian_blur import GaussianBlur
from aps_core.restoration.measurement import Measurement
from aps_core.restoration.plan import Settings, plan
from aps_core.samplers.aps import APSConfig

EXAMPLES = Path(__file__).parents[2] / "examples"
PHOTOS = sorted((EXAMPLES / "photos").glob("*.png"))


@pytest.fixture(scope="module")
def photos():
    return [images.to_tensor(images.open_image(path.read_bytes())) for path in PHOTOS]


def planned(measurement):
    engine: Any = SimpleNamespace(device=torch.device("cpu"), stride=8)  # all that a plan reads
    return plan(measurement, Settings(sampler=APSConfig(), loss=MeasurementLoss()), engine)


def noisy(x, sigma):
    return add_noise(x, sigma, torch.Generator().manual_seed(0))


def test_noise_has_the_given_strength_and_is_not_clipped():
    y = noisy(torch.ones(3, 100, 100), 0.1)
    assert abs(y.std().item() - 0.1) < 0.003
    assert y.max() > 1.2


@pytest.mark.parametrize("sigma", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("size", [256, 128])
def test_estimates_on_photographs(photos, sigma, size):
    for x in photos:
        y = noisy(resize(x, (size, size)).clamp(-1, 1), sigma)
        assert estimate_sigma(y) == pytest.approx(sigma, rel=0.2)


def test_clean_photographs_get_small_estimates(photos):
    assert max(estimate_sigma(x) for x in photos) < 0.01
    grey = [estimate_sigma(x.mean(0, keepdim=True).expand(3, -1, -1)) for x in photos]
    assert sum(each < 0.012 for each in grey) >= 15
    assert max(grey) < 0.04  # patches of five pixels; of three, 0.05


@pytest.mark.parametrize("sigma", [0.02, 0.05, 0.1])
def test_gray_photographs_are_estimated_from_a_single_channel(photos, sigma):
    found = [
        estimate_sigma(noisy(x.mean(0, keepdim=True), sigma).expand(3, -1, -1)) for x in photos
    ]
    near = sum(f == pytest.approx(sigma, rel=0.2) for f in found)
    assert near >= 14  # without other channels to compare, fur and grass resemble noise
    assert min(found) > 0.8 * sigma


@pytest.mark.parametrize("name", ["scan-1400", "scan-1500", "page-comfortaa"])
def test_the_letters_of_a_blurred_page_are_no_noise(name):
    page = images.to_tensor(images.open_image((EXAMPLES / f"documents/{name}.png").read_bytes()))
    blurred = GaussianBlur(sigma=1.0).bind((3, page.shape[1], page.shape[2]))(page[None])[0]

    def eight_bit(y):
        return ((y.clamp(-1, 1) + 1) * 127.5).round() / 127.5 - 1

    assert estimate_sigma(eight_bit(blurred)) < 0.004
    for sigma in (0.02, 0.05):
        assert estimate_sigma(eight_bit(noisy(blurred, sigma))) == pytest.approx(sigma, rel=0.1)


def test_flat_pictures_are_exact():
    for sigma in (0.0, 0.01, 0.2):
        for side in (64, 96, 256):
            assert estimate_sigma(noisy(torch.zeros(3, side, side), sigma)) == pytest.approx(
                sigma, rel=0.06, abs=1e-4
            )


def test_saturated_and_unobserved_pixels_are_left_out():
    x = torch.zeros(3, 96, 96)
    x[:, :, :48] = 1.0
    y = noisy(x, 0.05).clamp(-1, 1)  # half of the picture is clipped flat
    assert estimate_sigma(y) == pytest.approx(0.05, rel=0.1)
    operator = (
        OperatorSpec.named("inpainting")
        .model_validate({"mask": "box", "top": 0, "left": 0, "width": 0.5, "height": 1})
        .bind((3, 96, 96))
    )
    hidden = noisy(torch.zeros(3, 96, 96), 0.05) * operator.weight[0]
    assert estimate_sigma(hidden, operator.weight) == pytest.approx(0.05, rel=0.1)


def test_scattered_pixels_suffice_for_an_estimate(photos):
    operator = (
        OperatorSpec.named("inpainting")
        .model_validate({"mask": "random", "fraction": 0.7})
        .bind((3, 256, 256))
    )
    found = [estimate_sigma(noisy(x, 0.05) * operator.weight[0], operator.weight) for x in photos]
    assert all(0.04 < f < 0.09 for f in found), found


def test_a_colour_clipped_throughout_is_left_out():
    y = noisy(torch.zeros(3, 96, 96), 0.05)
    y[2] = -1
    assert estimate_sigma(y) == pytest.approx(0.05, rel=0.1)


def test_tiny_pictures_are_supported():
    assert estimate_sigma(torch.zeros(3, 2, 2)) == 0.0
    assert estimate_sigma(torch.zeros(3, 5, 5)) == 0.0


@pytest.mark.parametrize("peak", [20.0, 500.0])
def test_photon_noise_increases_with_brightness(peak):
    generator = torch.Generator().manual_seed(0)
    for level in (-0.8, 0.0, 1.0):
        y = add_poisson(torch.full((3, 120, 120), level), peak, generator)
        photons = (level + 1) / 2 * peak
        assert y.mean().item() == pytest.approx(level, abs=0.02)
        assert y.std().item() == pytest.approx(2 / peak * photons**0.5, rel=0.03)
        assert poisson_sigma(y, peak).mean().item() == pytest.approx(y.std().item(), rel=0.2)
    assert torch.equal(
        add_poisson(torch.full((3, 4, 4), -1.0), peak, generator), torch.full((3, 4, 4), -1.0)
    )


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_truth_has_the_noise_floor_misfit_and_dark_values_more_weight(norm):
    x = torch.linspace(-0.9, 0.9, 128).expand(3, 128, 128)
    y = add_poisson(x, 50.0, torch.Generator().manual_seed(0))
    objective = MeasurementObjective(Bound(lambda x_BCHW: x_BCHW), y, poisson_sigma(y, 50.0), norm)
    assert float(objective(x[None])[1]) == pytest.approx(objective.noise_floor, rel=0.25)
    dark, bright = y.clone(), y.clone()
    dark[..., :20] += 0.1
    bright[..., -20:] += 0.1
    assert float(objective(dark[None])[0]) > 1.5 * float(objective(bright[None])[0])


def test_a_constant_noise_map_equals_the_scalar(photos):
    x, y = photos[0][None], noisy(photos[0], 0.1)
    operator = OperatorSpec.named("inpainting").model_validate({"mask": "random"}).bind(x.shape[1:])
    one, many = (
        MeasurementObjective(operator, y, sigma) for sigma in (0.1, torch.full_like(y, 0.1))
    )
    assert many.noise_floor == pytest.approx(one.noise_floor, rel=1e-5)
    for a, b in zip(one(x), many(x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_the_estimate_for_an_8_bit_picture_is_at_least_its_rounding_error():
    """A clean gradient of 8 bits: independent of the constant, the rounding error is measured."""
    exact = torch.linspace(-0.8, 0.8, 96 * 96).view(1, 96, 96).expand(3, -1, -1)
    picture = images.Picture(images.to_pil(exact))
    rounded = images.to_tensor(picture)
    sigma = planned(Measurement(picture)).sigma
    assert sigma >= (rounded - exact).std().item() * 0.98
    assert sigma == pytest.approx(2 / 255 / 12**0.5, rel=0.5)
    used = planned(Measurement(picture, sigma=0.0))
    assert (used.sigma, used.deviation(rounded)) == (0.0, 0.0), "a given sigma is used as it is"
    for y in (images.to_pil(torch.zeros(3, 64, 64)), np.zeros((64, 64, 3), dtype=np.uint8)):
        assert planned(Measurement(y)).sigma == pytest.approx(0.00226, rel=0.01)
    assert planned(Measurement(torch.zeros(3, 64, 64))).sigma == 0


@pytest.mark.parametrize("quality", [40, 80])
def test_the_estimate_for_a_compressed_picture_covers_what_compression_rounds_off(photos, quality):
    """The noise left to see in a blurred and compressed picture is far less than its error."""
    stages = [{"type": "defocus_blur", "radius": 4.0}, {"type": "jpeg", "quality": quality}]
    operator = Compose.model_validate({"stages": stages})
    blur, compression = operator.stages
    blurred = blur.bind(photos[0].shape)(photos[0][None])
    compressed = compression.bind(photos[0].shape)(blurred)
    error = (compressed - blurred).std().item()
    plan = planned(Measurement(images.to_pil(compressed[0]), operator))
    sigma = plan.judged_noise(compressed)
    assert 0.8 * error <= sigma <= 2 * error
    assert blur.rounding == 0


DOCUMENTS = sorted((PHOTOS[0].parents[1] / "documents").glob("*.png"))


def clipped_pages(sigma):
    for path in DOCUMENTS:
        x = images.to_tensor(images.open_image(path.read_bytes()))
        yield images.to_tensor(images.Picture(images.to_pil(noisy(x, sigma))))


def test_clean_pages_have_no_noise():
    """Where little but the edges of letters is not clipped, edges are not taken for noise.

    One page has small type on tinted paper, which nothing clips.
    """
    assert [
        path.stem
        for path, y in zip(DOCUMENTS, clipped_pages(0.0), strict=True)
        if estimate_sigma(y) > 0.01
    ] == ["page-play"]


@pytest.mark.parametrize("sigma", [0.02, 0.1])
def test_noise_on_pages_is_told_from_the_half_that_clipping_left(sigma):
    assert all(estimate_sigma(y) == pytest.approx(sigma, rel=0.15) for y in clipped_pages(sigma))


def test_black_and_white_stripes_are_not_noise():
    stripes = torch.tensor([-1.0, 1.0]).repeat_interleave(3).repeat(8).expand(3, 48, 48)
    assert estimate_sigma(stripes) == 0
