"""Classical estimates by shrinkage in the cosine transform."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.fft import dct, dctn, idct, idctn

from aps_core.evaluation.photographs import photographs
from aps_core.imaging.dct_shrinkage import shrunk, some_places
from aps_core.imaging.total_variation import total_variation, total_variation_estimate
from aps_core.numerics.lbfgs import minimum
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators.base import Bound
from aps_core.operators.gaussian_blur import GaussianBlur
from aps_core.operators.hdr import HDR
from aps_core.operators.jpeg import JPEG
from aps_core.operators.linear_motion_blur import LinearMotionBlur
from aps_core.sampling import first_estimate
from aps_core.sampling.first_estimate import classical_estimate
from aps_core.sampling.shrinkage_estimate import shrinkage_estimate

PHOTOS = Path(__file__).parents[2] / "examples" / "photos"


@pytest.fixture(scope="module")
def photo():
    return dict(photographs(PHOTOS, 64))["coffee"][None]


def noisy(x, sigma):
    return x + sigma * torch.randn(x.shape, generator=torch.Generator().manual_seed(3))


def error(x, truth):
    return float((x - truth).square().mean())


def test_one_grid_of_squares_against_scipy():
    """Both passes, of squares that begin where the picture does."""
    y, sigma = noisy(torch.linspace(-1, 1, 24).expand(1, 3, 16, 24).clone(), 0.2), 0.2
    mixed = dct(y[0].double().numpy(), axis=0, norm="ortho")
    expected = np.empty_like(mixed)
    for channel in range(3):
        for top in range(0, 16, 8):
            for left in range(0, 24, 8):
                square = (channel, slice(top, top + 8), slice(left, left + 8))
                seen = dctn(mixed[square], norm="ortho")
                kept = np.abs(seen) > 2.7 * sigma
                kept[0, 0] = True
                gain = (kept * seen) ** 2 / ((kept * seen) ** 2 + sigma**2)
                gain[0, 0] = 1
                expected[square] = idctn(gain * seen, norm="ortho")
    found = shrunk(y, sigma, places=((7, 7),))[0].numpy()
    assert np.abs(found - idct(expected, axis=0, norm="ortho")).max() < 1e-5


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (9, 16), (30, 8)])
def test_pictures_of_any_size_keep_their_colour(shape):
    x = torch.tensor([0.3, -0.2, 0.8]).view(1, 3, 1, 1).expand(2, 3, *shape)
    assert torch.allclose(shrunk(x, 0.1), x, atol=1e-5)
    for number in range(8):
        assert torch.allclose(shrunk(x, 0.1, some_places(number)), x, atol=1e-5)


@pytest.mark.parametrize("sigma", [0.05, 0.2])
def test_noise_is_removed_better_than_by_total_variation(photo, sigma):
    y = noisy(photo, sigma)
    objective = MeasurementObjective(Bound(lambda x: x), y, sigma, "l2")
    smooth = [
        total_variation_estimate(objective, torch.zeros_like(photo), weight=weight / sigma)
        for weight in (0.6, 1.2)
    ]
    estimate = classical_estimate(objective, torch.zeros_like(photo), 1, 0)
    assert error(estimate, photo) < 0.8 * min(error(x, photo) for x in smooth)


@pytest.mark.parametrize("operator", [GaussianBlur(sigma=1.5), LinearMotionBlur(length=9)])
def test_blurs_are_undone_better_than_by_total_variation(photo, operator):
    bound = operator.bind(photo.shape[1:])
    y, nothing = noisy(bound(photo), 0.05), torch.zeros_like(photo)
    objective = MeasurementObjective(bound, y, 0.05, "l2")
    smooth = [total_variation_estimate(objective, nothing, weight=weight) for weight in (4.0, 8.0)]
    estimate = classical_estimate(objective, nothing, 150, 0)
    assert error(estimate, photo) < 0.95 * min(error(x, photo) for x in smooth)


@pytest.mark.parametrize("quality", [15, 50])
def test_squares_of_a_jpeg_become_smooth(photo, quality):
    """The rounding is taken for more noise than it is: its errors are alike."""
    jpeg = JPEG(quality=quality)
    y = jpeg.bind(photo.shape[1:])(photo)

    def estimate(sigma):
        objective = MeasurementObjective(Bound(lambda x: x), y, sigma, "l2")
        return classical_estimate(objective, torch.zeros_like(photo), 1, 0)

    found = estimate(jpeg.likelihood_noise(0.0))
    assert error(found, photo) < 0.9 * error(y, photo)
    assert error(found, photo) < error(estimate(jpeg.rounding), photo)


@pytest.mark.parametrize("smoothness", [0, 8])
def test_noise_of_clipped_pictures_is_removed_better_than_by_total_variation(photo, smoothness):
    """Of the values that are known."""
    photo = 0.6 * photo
    y = noisy((2 * photo).clamp(-1, 1), 0.1)
    objective = MeasurementObjective(Bound(lambda x: 2 * x, clips=True), y, 0.1, "l2")
    inside = (2 * photo).abs() < 0.7
    assert 0.1 < 1 - inside.float().mean() < 0.5
    estimate = classical_estimate(objective, torch.zeros_like(photo), 150, smoothness)
    for weight in (2.0, 4.0, 8.0):
        smooth = total_variation_estimate(objective, torch.zeros_like(photo), weight=weight)
        assert error(estimate[inside], photo[inside]) < 0.9 * error(smooth[inside], photo[inside])


def test_clipped_areas_of_pictures_without_noise_are_filled_as_smoothly(photo):
    """The weight of smoothness was chosen for some noise; nearly exact values must not outweigh
    it.
    """
    photo = 0.6 * photo
    y = (2 * photo).clamp(-1, 1)
    clipped = y.abs() == 1

    def filled(sigma: float) -> torch.Tensor:
        objective = MeasurementObjective(Bound(lambda x: 2 * x, clips=True), y, sigma, "l2")
        return classical_estimate(objective, torch.zeros_like(photo), 150, 12)

    rough = total_variation(filled(0.05) * clipped)
    assert total_variation(filled(0.001) * clipped) < 1.05 * rough


def test_noise_of_known_pixels_is_removed_beside_gaps(photo):
    known = (torch.rand(photo.shape[2:], generator=torch.Generator().manual_seed(1)) < 0.7).float()
    objective = MeasurementObjective(
        Bound(lambda x: x * known, weight=known), noisy(photo, 0.1) * known, 0.1, "l2"
    )
    estimate = classical_estimate(objective, torch.zeros_like(photo), 150, 0)
    smooth = total_variation_estimate(
        objective, torch.zeros_like(photo), weight=0, curvature_weight=4.0
    )
    assert error(estimate, photo) < 0.9 * error(smooth, photo)


def test_a_measurement_smaller_than_the_token_grid_is_continued(photo):
    bound = Bound(lambda x: x).cropped(60, 61)
    y = noisy(photo[..., :60, :61], 0.1)
    estimate = classical_estimate(MeasurementObjective(bound, y, 0.1, "l2"), photo, 1, 0)
    assert estimate.shape == photo.shape
    assert error(estimate[..., :60, :61], photo[..., :60, :61]) < 0.4 * 0.1**2


def test_estimates_of_a_batch_are_those_of_its_pictures(photo):
    bound = GaussianBlur(sigma=1.5).bind(photo.shape[1:])
    both = torch.cat([photo, photo.flip(1, 3)])
    y, nothing = (
        noisy(bound(both), 0.05),
        torch.zeros_like(both).to(memory_format=torch.channels_last),
    )
    together = classical_estimate(MeasurementObjective(bound, y, 0.05, "l2"), nothing, 150, 0)
    for i in range(2):
        objective = MeasurementObjective(bound, y[i], 0.05, "l2")
        alone = classical_estimate(objective, nothing[:1], 150, 0)
        assert error(together[i : i + 1], alone) < 0.02**2


def test_gradients_of_any_layout_lead_to_the_minimum(photo):
    start = torch.zeros_like(photo).to(memory_format=torch.channels_last)
    found = minimum(lambda x: (x - photo).square().sum(), start, 10)
    assert error(found, photo) < 1e-6


def test_every_step_is_watched_and_may_end_it(photo):
    bound = GaussianBlur(sigma=1.5).bind(photo.shape[1:])
    objective = MeasurementObjective(bound, noisy(bound(photo), 0.05), 0.05, "l2")
    seen = []

    def watch(done, steps, loss, x_BCHW):
        seen.append((done, steps))
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shrinkage_estimate(objective, torch.zeros_like(photo), 0.05, 80, watch)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert {steps for _, steps in seen} == {80}


def test_a_clipped_colour_goes_on_as_the_others_do(monkeypatch):
    """A sandy slope with ripples, whose red is clipped."""
    across, down = torch.linspace(-0.4, 0.3, 48), 0.1 * torch.linspace(0, 18, 32).sin()[:, None]
    green = across + down
    truth = torch.stack([green + 0.4, green, green - 0.2])[None]
    operator = HDR(scale=2.5).bind((3, 32, 48))
    y = operator(truth)
    clipped = y[:, 0] == 1
    assert 0.3 < clipped.float().mean() < 0.8
    assert (y[:, 1] < 1).float().mean() > 0.9
    objective = MeasurementObjective(operator, y, 0.01)

    def red_error() -> float:
        x = classical_estimate(objective, torch.zeros_like(truth), 250, 12.0)
        return error(x[:, 0][clipped], truth[:, 0][clipped]) ** 0.5

    found = red_error()
    monkeypatch.setattr(first_estimate, "COLOURS", 1.0)
    assert found < 0.6 * red_error(), found
