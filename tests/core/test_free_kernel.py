"""A blur of any shape: its likelihood, its M step, and its job."""

from pathlib import Path

import numpy as np
import pytest
import torch

from aps_core.blind import free_kernel, kernel_search
from aps_core.blind.effort import Effort
from aps_core.blind.kernel_search import KernelEstimate, light_of
from aps_core.blind.likelihood import UnseenDetail
from aps_core.errors import NothingToRestore
from aps_core.imaging import images, noise
from aps_core.imaging.images import Picture
from aps_core.operators.base import KERNEL_SIDE
from aps_core.operators.blind_blur import BlindBlur
from aps_core.operators.gaussian_blur import GaussianBlur
from aps_core.operators.kernel_blur import KernelBlur
from aps_core.operators.linear_motion_blur import LinearMotionBlur
from aps_core.operators.unknown import Search
from aps_core.runtime.engine import ImageEngine

EXAMPLES = Path(__file__).parents[2] / "examples"


def bow():
    """The trace (11, 11) of a movement along a bow."""
    kernel = np.zeros((11, 11))
    for angle in np.linspace(0.3, 2.6, 200):
        kernel[round(7 - 5 * np.sin(angle)), round(5 + 5 * np.cos(angle))] += 1
    return KernelBlur(kernel=tuple(tuple(row) for row in kernel.tolist()))


def movement():
    """The trace (13, 13) of a shaken camera: a smooth random walk."""
    rng = np.random.default_rng(4)
    velocity, place, places = rng.normal(size=2), np.zeros(2), []
    rng.normal(size=(400, 2))  # the draws of another axis
    for _ in range(400):
        places.append(place)
        velocity = 0.98 * velocity + 0.25 * rng.normal(size=2)
        place = place + velocity
    centred = np.array(places) - np.mean(places, axis=0)
    centred *= 5 / np.abs(centred).max()
    kernel = np.zeros((13, 13))
    for right, down in 6 + centred:
        row, column = int(down), int(right)
        below, beside = down - row, right - column
        shares = np.outer((1 - below, below), (1 - beside, beside))
        kernel[row : row + 2, column : column + 2] += shares
    return KernelBlur(kernel=tuple(tuple(row) for row in kernel.tolist()))


def blurred(path, blur, sigma=0.02, side=None):
    """A picture and its blurred, noisy upload."""
    x_CHW = images.to_tensor(images.open_image((EXAMPLES / path).read_bytes()))
    x_CHW = x_CHW[:, :side, :side].contiguous()
    y_CHW = blur.bind(tuple(x_CHW.shape))(x_CHW[None])[0]
    return x_CHW, noise.add_noise(y_CHW, sigma, torch.Generator().manual_seed(0))


def similar(one, other):
    """Largest normalised correlation of two kernels (63, 63) over all shifts."""
    spectra = torch.fft.rfft2(one) * torch.fft.rfft2(other).conj()
    return float(torch.fft.irfft2(spectra, one.shape).max() / one.norm() / other.norm())


@pytest.fixture(scope="module")
def engine():
    return ImageEngine.load("embedded_documents", "cpu")


def test_the_likelihood_of_a_kernel_is_that_of_its_blur():
    x_CHW, y_CHW = blurred("documents/page-quattrocento.png", bow(), side=80)
    likelihood = UnseenDetail(y_CHW, 0.02, margin=8)
    for blur in (bow(), LinearMotionBlur(length=7, angle=30)):
        by_kernel = likelihood.of_kernel(light_of(blur), x_CHW[None])
        by_blur = likelihood([blur], x_CHW[None])[0]
        torch.testing.assert_close(by_kernel, by_blur, rtol=1e-3, atol=0.5)


def test_m_steps_find_the_kernel_of_known_pictures():
    x_CHW, y_CHW = blurred("documents/page-quattrocento.png", bow(), side=96)
    kernel_KK = start_KK = free_kernel.centred(light_of(LinearMotionBlur(length=9, angle=0)), 15)
    likelihood = UnseenDetail(y_CHW, 0.02, margin=8)
    for _ in range(4):
        kernel_KK = free_kernel.maximised(kernel_KK, x_CHW[None], likelihood)
    assert float(kernel_KK.sum()) == pytest.approx(1)
    assert float(kernel_KK.min()) >= 0
    true, found, start = (
        free_kernel.centred(each, 63) for each in (light_of(bow()), kernel_KK, start_KK)
    )
    assert similar(start, true) < 0.6
    assert similar(found, true) > 0.98


def test_centring_moves_the_light_and_keeps_it():
    off_KK = torch.zeros(9, 9)
    off_KK[1, 6] = off_KK[1, 7] = off_KK[1, 8] = 1 / 3
    middle = free_kernel.centred(off_KK, 5)
    assert middle[2].tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 0])
    assert free_kernel.deviation(middle) == pytest.approx((1 / 3) ** 0.5)
    assert free_kernel.difference(middle, middle.T) == pytest.approx(2 / 3)


def test_the_trace_of_a_shaken_camera_is_found_on_a_page(engine):
    _, y_CHW = blurred("documents/scan-1400.png", movement())
    watched = []
    search = Search(
        Picture(images.to_pil(y_CHW)),
        engine,
        on_inner=lambda info: watched.append(info.iteration / info.inner_steps),
    )
    operator = BlindBlur(method="free_kernel", chains=2, iterations=2)
    found = operator.find(search)
    assert isinstance(found.operator, KernelBlur)
    told = found.kernel_search
    assert told is not None
    assert told.support > 0
    assert told.kernel == found.operator.kernel
    assert len(told.path) == 2 * 3 + 3, "start and every iteration of each scale"
    assert "Estimated from 2 restorations that differ by" in found.text
    true = light_of(movement())
    assert similar(light_of(found.operator), true) > 0.9
    for width in (1.0, 1.5, 2.0, 2.5):
        assert similar(light_of(GaussianBlur(sigma=width)), true) < 0.88
    assert watched == sorted(watched)
    assert 0.5 < watched[-1] <= 1, "the search reports its progress"


def estimate(support):
    return KernelEstimate(torch.full((3, 3), 1 / 9), [torch.ones(1, 1)], 0.02, support)


@pytest.mark.parametrize(("side", "width"), [(24, 1.0), (40, 6.0), (200, 30.0)])
def test_any_size_of_picture_and_blur_can_be_searched(engine, monkeypatch, side, width):
    """A blur may reach farther than a kernel has pixels, and the picture be smaller than one."""
    noise_CHW = torch.rand(3, side, side, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(kernel_search, "SCALES", (1.0,))
    monkeypatch.setattr(free_kernel, "DESCENT", 1)
    found = kernel_search.kernel_of(
        images.to_pil(noise_CHW), GaussianBlur(sigma=width), engine, Effort(2, 1, free=True)
    )
    assert found.kernel_KK.shape[0] <= KERNEL_SIDE
    assert float(found.kernel_KK.sum()) == pytest.approx(1)


def test_without_support_the_family_is_used_and_that_is_said(engine, monkeypatch):
    true = LinearMotionBlur(length=9, angle=60)
    _, y_CHW = blurred("documents/scan-1400.png", true)
    search = Search(Picture(images.to_pil(y_CHW)), engine)
    monkeypatch.setattr(kernel_search, "kernel_of", lambda *_, **__: estimate(-1.0))
    found = BlindBlur(method="free_kernel").find(search)
    plain = BlindBlur().find(search)
    assert found.operator == plain.operator
    assert found.text == plain.text
    assert any("does not support a free kernel" in each for each in found.unsure)
    assert found.kernel_search is not None
    assert found.kernel_search.support == -1
    monkeypatch.setattr(kernel_search, "kernel_of", lambda *_, **__: estimate(1.0))
    assert BlindBlur(method="free_kernel").find(search).operator.type == "kernel_blur"


def test_a_page_without_any_blur_has_nothing_to_restore(engine, monkeypatch):
    page = images.open_image((EXAMPLES / "documents/page-quattrocento.png").read_bytes())
    monkeypatch.setattr(kernel_search, "kernel_of", lambda *_, **__: estimate(-1.0))
    with pytest.raises(NothingToRestore, match="does not support a free kernel"):
        BlindBlur(method="free_kernel").find(Search(page, engine))


def test_photographs_get_the_blur_of_a_family(engine):
    _, y_CHW = blurred("photos/castle.png", LinearMotionBlur(length=13, angle=20))
    search = Search(Picture(images.to_pil(y_CHW)), engine)
    found = BlindBlur(method="free_kernel").find(search)
    assert isinstance(found.operator, LinearMotionBlur)
    assert found.kernel_search is None
    assert "pages and screens only" in found.unsure[-1]
