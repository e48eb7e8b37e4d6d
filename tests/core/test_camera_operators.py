"""Blurs of real cameras: kernels against closed forms, an uploaded kernel, lengths in pixels of the
upload.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from aps_core.errors import InvalidSpec
from aps_core.evaluation.metrics import psnr
from aps_core.imaging import images
from aps_core.imaging.resampling import resize
from aps_core.operators.compose import Compose
from aps_core.operators.defocus_blur import disc_kernel
from aps_core.operators.gaussian_blur import GaussianBlur
from aps_core.operators.kernel_blur import KernelBlur, kernel_rows, resampled_kernel
from aps_core.operators.linear_motion_blur import line_kernel
from aps_core.operators.super_resolution import SuperResolution
from aps_core.tasks import Inputs, RestoreSpec

PHOTO = Path(__file__).parents[2] / "examples/photos/coffee.png"
BLURS = [
    {"type": "gaussian_blur", "sigma": 4.0},
    {"type": "defocus_blur", "radius": 7.0},
    {"type": "linear_motion_blur", "length": 18.0, "angle": 30},
    {"type": "motion_blur", "kernel_size": 41, "seed": 3},
    {"type": "kernel_blur", "kernel": [[1] * 5 + [4] * 5 + [0] * 4] * 13},
]


def grid(kernel):
    """Rows and columns relative to the centre."""
    return (
        np.mgrid[: kernel.shape[0], : kernel.shape[1]] - np.array(kernel.shape)[:, None, None] // 2
    )


def covariance(kernel):
    points = grid(kernel).reshape(2, -1)
    return np.cov(points, aweights=kernel.ravel(), ddof=0)


@pytest.mark.parametrize("radius", [0.3, 0.8, 1.5, 4.3, 12.0])
def test_the_disc_has_the_area_of_every_pixel_inside_it(radius):
    kernel = disc_kernel(radius)
    fine = 400  # independent of the tested function: points on a square grid
    rows, columns = grid(kernel)
    at = (np.arange(fine) + 0.5) / fine - 0.5
    for row, column in (
        (rows[i, j], columns[i, j]) for i, j in np.ndindex(len(kernel), min(3, len(kernel)))
    ):
        share = np.mean((row + at[:, None]) ** 2 + (column + at) ** 2 <= radius**2)
        area = kernel[row + len(kernel) // 2, column + len(kernel) // 2] * math.pi * radius**2
        assert area == pytest.approx(share, abs=0.005)
    assert kernel.sum() == pytest.approx(1)
    np.testing.assert_allclose(kernel, kernel[::-1], atol=1e-9)
    np.testing.assert_allclose(kernel, kernel.T, atol=2e-4)


def test_a_horizontal_line_is_exact():
    whole = line_kernel(4, 0)
    np.testing.assert_allclose(
        whole[len(whole) // 2], [0, 0.125, 0.25, 0.25, 0.25, 0.125, 0], atol=2e-3
    )
    assert line_kernel(0.01, 77).max() > 0.98  # no movement, no blur


@pytest.mark.parametrize("angle", [0, 17.5, 45, 90, 130])
@pytest.mark.parametrize("length", [3.3, 11, 40.5])
def test_a_line_has_the_variance_and_direction_of_a_segment(length, angle):
    kernel = line_kernel(length, angle)
    values, axes = np.linalg.eigh(covariance(kernel))
    # bilinear weights add at most 1/4 to each variance
    assert values[1] == pytest.approx(length**2 / 12, abs=0.26)
    assert values[0] < 0.26
    down, right = axes[:, 1]
    assert abs(math.sin(math.atan2(-down, right) - math.radians(angle))) < 0.03


@pytest.mark.parametrize("factor", [0.9, 0.37])
def test_a_resampled_kernel_keeps_sum_and_centre_and_scales_its_width(factor):
    kernel = line_kernel(21, 30) + np.pad(np.full((5, 7), 0.01), ((14, 4), (2, 14)))
    small = resampled_kernel(kernel, factor)
    assert small.sum() == pytest.approx(kernel.sum())

    def mean(k):
        return (grid(k) * k).sum((1, 2)) / k.sum()

    np.testing.assert_allclose(mean(small), mean(kernel) * factor, atol=0.02)
    widened = covariance(small) - covariance(kernel) * factor**2
    assert np.abs(widened).max() < 0.26


def test_a_kernel_is_the_picture_of_a_point_of_light():
    rows = [[0, 0, 9], [1, 5, 0], [0, 0, 0]]
    spec = KernelBlur(kernel=rows)
    point = torch.zeros(1, 3, 9, 11)
    point[..., 4, 5] = 30
    seen = spec.bind((3, 9, 11))(point)[0, 0]
    torch.testing.assert_close(seen[3:6, 4:7], 2.0 * torch.tensor(rows), atol=1e-4, rtol=0)
    assert seen.sum() == pytest.approx(30, abs=1e-3)


@pytest.mark.parametrize(
    "kernel", [[], [[]], [[1, 2], [1]], [[0, 0]], [[-1, 2]], [[1] * 64], "other"]
)
def test_unusable_kernels_are_refused(kernel):
    with pytest.raises(ValidationError):
        KernelBlur(kernel=kernel)


def small_picture(values):
    return images.Picture(Image.fromarray(np.array(values, dtype=np.uint8)))


def test_a_kernel_picture_replaces_the_weights_in_every_stage():
    picture = small_picture([[0, 128, 0], [255, 255, 255]])
    spec = RestoreSpec.model_validate(
        {"operator": {"type": "compose", "stages": [{"type": "kernel_blur"}, {"type": "hdr"}]}}
    )
    photo = images.open_image(PHOTO.read_bytes())
    spec.check_inputs(Inputs(photo, kernel=picture))
    used = spec.measurement(Inputs(photo, kernel=picture)).spec
    direct = KernelBlur(kernel=[[0, 128, 0], [255, 255, 255]])
    assert isinstance(used, Compose)
    assert used.stages[0] == direct
    with pytest.raises(InvalidSpec, match="needs a kernel"):
        spec.check_inputs(Inputs(photo))
    with pytest.raises(InvalidSpec, match="at most 63x63"):
        spec.check_inputs(Inputs(photo, kernel=photo))
    plain = RestoreSpec.model_validate({"operator": {"type": "denoise"}})
    with pytest.raises(InvalidSpec, match="takes no kernel"):
        plain.check_inputs(Inputs(photo, kernel=picture))
    with pytest.raises(InvalidSpec, match="black"):
        kernel_rows(small_picture([[0, 0]]))


@pytest.mark.parametrize("operator", BLURS, ids=lambda each: each["type"])
def test_lengths_are_in_pixels_of_the_upload_at_any_working_size(operator):
    """Blurring and then reducing a photograph equals reducing it and then blurring less."""
    truth = images.to_tensor(images.open_image(PHOTO.read_bytes()))
    spec = RestoreSpec.model_validate({"operator": operator, "working_size": 96})
    uploaded = spec.operator.bind((3, *truth.shape[1:]))(truth[None])[0]
    seen, small = (resize(x, (96, 96)) for x in (uploaded, truth))
    scaled = spec.layout((256, 256)).working.bind((3, 96, 96))(small[None])[0]
    unscaled = spec.operator.bind((3, 96, 96))(small[None])[0]
    right, wrong = (
        psnr(x[None, :, 16:-16, 16:-16], seen[None, :, 16:-16, 16:-16]).item()
        for x in (scaled, unscaled)
    )
    assert right > 32
    assert right > wrong + 8


def test_only_lengths_are_scaled_and_only_if_the_upload_is_reduced():
    stages = [{"type": "gaussian_blur", "sigma": 2.0}, {"type": "super_resolution", "factor": 2}]
    spec = RestoreSpec.model_validate(
        {"operator": {"type": "compose", "stages": stages}, "working_size": 256}
    )
    assert spec.layout((128, 100)).working == spec.operator
    used = spec.layout((512, 400)).working
    assert isinstance(used, Compose)
    blur, reduction = used.stages
    assert isinstance(blur, GaussianBlur)
    assert blur.sigma == pytest.approx(0.5)
    assert isinstance(reduction, SuperResolution)
    assert reduction.factor == 2
    assert "blur of 0.5 pixels, then a reduction" in spec.layout((512, 400)).working.words()


def test_a_random_path_keeps_its_shape_when_the_upload_is_reduced():
    truth = images.to_tensor(images.open_image(PHOTO.read_bytes()))
    spec = RestoreSpec.model_validate(
        {"operator": {"type": "motion_blur", "kernel_size": 15}, "working_size": 128}
    )
    seen = resize(spec.operator.bind((3, *truth.shape[1:]))(truth[None])[0], (128, 128))
    small = resize(truth, (128, 128))[None]
    found = spec.layout((256, 256)).working.bind((3, 128, 128))(small)
    assert psnr(found, seen[None]).item() > 45
