"""A blur of any shape: its evidence, EM, the candidates, and its job."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from aps_core.errors import NothingToRestore, SamplingCancelled
from aps_core.identify.blind import kernel_search
from aps_core.identify.blind.edge_prediction import predicted
from aps_core.identify.blind.kernel import centred, connected, deviation, light_of, likeness
from aps_core.identify.blind.kernel_search import KernelEstimate
from aps_core.identify.blind.sparse_gradients import SparseGradients
from aps_core.identify.kinds.auto import Auto
from aps_core.identify.kinds.blind_blur import BlindBlur
from aps_core.identify.search import Search
from aps_core.imaging import images, noise
from aps_core.imaging.images import Picture
from aps_core.operators.base import KERNEL_SIDE
from aps_core.operators.compose import Compose
from aps_core.operators.gaussian_blur import GaussianBlur
from aps_core.operators.kernel_blur import KernelBlur
from aps_core.operators.linear_motion_blur import LinearMotionBlur

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


@pytest.fixture(scope="module")
def page():
    """A page blurred along the bow, grey, and the true kernel (11, 11)."""
    _, y_CHW = blurred("documents/page-quattrocento.png", bow(), side=96)
    return y_CHW.mean(0), centred(light_of(bow()), 11)


def test_the_posterior_solves_the_linear_equations():
    """Against the matrix of the convolution, made column by column by conv2d."""
    generator = torch.Generator().manual_seed(0)
    y_HW = torch.rand(9, 8, generator=generator)
    kernel_KK = torch.rand(3, 3, generator=generator)
    kernel_KK /= kernel_KK.sum()
    picture = SparseGradients(y_HW, 0.3)
    first = picture.posterior(kernel_KK, rounds=1)
    units = torch.eye(10 * 9).view(-1, 1, 10, 9)
    matrix = torch.nn.functional.conv2d(units, kernel_KK.flip(0, 1)[None, None]).flatten(1).T
    gradients = torch.stack([y_HW.diff(dim=0)[:, :-1], y_HW.diff(dim=1)[:-1]])
    noise = 2 * 0.3**2
    enclosed = torch.nn.functional.pad(gradients[None], (1, 1, 1, 1), mode="replicate")[0]
    gamma = (enclosed.square() + enclosed.square().mean()).flatten(1)
    for direction in range(2):
        system = matrix.T @ matrix / noise + torch.diag(1 / gamma[direction])
        mean = torch.linalg.solve(system, matrix.T @ gradients[direction].flatten() / noise)
        torch.testing.assert_close(first.mean_GHW[direction].flatten(), mean, rtol=2e-3, atol=1e-4)
    variance = 1 / (float(kernel_KK.square().sum()) / noise + 1 / gamma)
    torch.testing.assert_close(first.variance_GHW.flatten(1), variance)
    again = picture.posterior(kernel_KK, first, rounds=30)
    torch.testing.assert_close(
        again.gamma_GHW, again.mean_GHW.square() + again.variance_GHW, rtol=1e-3, atol=1e-5
    )


def test_the_true_kernel_has_the_most_evidence(page):
    """Above all, more than no blur, which explains every picture without any misfit."""
    y_HW, true_KK = page
    picture = SparseGradients(y_HW, 0.02 / 3**0.5)
    none = torch.zeros(11, 11)
    none[5, 5] = 1
    others = [none, true_KK.T, *(light_of(GaussianBlur(sigma=width)) for width in (1, 2, 3))]

    def evidence(kernel_KK):
        kernel_KK = centred(kernel_KK, 11)
        return picture.evidence(kernel_KK, picture.posterior(kernel_KK))

    assert evidence(true_KK) > 1.05 * max(map(evidence, others))  # evidence is negative here


def test_em_sharpens_a_kernel_and_keeps_the_true_one(page):
    y_HW, true_KK = page
    picture = SparseGradients(y_HW, 0.02 / 3**0.5)
    soft = centred(light_of(GaussianBlur(sigma=1.0)), 5)
    start_KK = torch.nn.functional.conv2d(true_KK[None, None], soft[None, None], padding=2)[0, 0]
    found_KK = picture.improved(start_KK / start_KK.sum(), 40)
    assert likeness(start_KK, true_KK) < 0.9
    assert likeness(found_KK, true_KK) > 0.95
    assert likeness(picture.improved(true_KK, 20), true_KK) > 0.97
    assert float(found_KK.min()) >= 0
    assert float(found_KK.sum()) == pytest.approx(1)


def test_edge_prediction_finds_the_kernel_of_a_drawing():
    x_HW = -torch.ones(96, 96)
    for top, left, height, width in ((10, 12, 30, 8), (20, 40, 9, 40), (50, 20, 35, 25)):
        x_HW[top : top + height, left : left + width] = 0.8
    true = KernelBlur(kernel=((0, 0, 0, 0, 1), (0, 0, 0, 1, 0), (1, 1, 1, 0, 0)))
    y_HW = true.bind((1, 96, 96))(x_HW[None, None])[0, 0]
    start_KK = torch.zeros(7, 7)
    start_KK[3, 2:4] = 0.5
    found_KK = centred(predicted(y_HW, start_KK, 1e-2, 8), 63)
    assert likeness(centred(start_KK, 63), light_of(true)) < 0.7
    assert likeness(found_KK, light_of(true)) > 0.95


def test_centring_moves_the_light_and_keeps_it():
    off_KK = torch.zeros(9, 9)
    off_KK[1, 6] = off_KK[1, 7] = off_KK[1, 8] = 1 / 3
    middle = centred(off_KK, 5)
    assert middle[2].tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 0])
    assert deviation(middle) == pytest.approx((1 / 3) ** 0.5)
    assert likeness(middle, centred(off_KK, 5).roll((1, -1), (0, 1))) == pytest.approx(1)
    assert likeness(middle, middle.T) == pytest.approx(1 / 3)


def test_light_apart_from_the_trace_is_removed():
    kernel_KK = torch.zeros(7, 7)
    kernel_KK[1, 1] = kernel_KK[2, 2] = kernel_KK[3, 3] = 0.3
    kernel_KK[6, 0] = 0.05
    kernel_KK[3, 6] = 0.04
    kernel_KK[0, 1] = 0.01
    found = connected(kernel_KK, 0.05)
    assert found.nonzero().tolist() == [[1, 1], [2, 2], [3, 3]], "two islands, and a faint weight"
    assert float(found.sum()) == pytest.approx(1)
    dots = torch.eye(31)[::2, ::2].flatten()[:256].view(16, 16)
    assert float(connected(dots, 0.05).sum()) == pytest.approx(1)


def test_the_trace_of_a_shaken_camera_is_found_on_a_page(monkeypatch):
    monkeypatch.setattr(kernel_search, "DIRECTIONS", ((0, 1),))
    monkeypatch.setattr(kernel_search, "PRICES", (1e-2, 2.4e-2))
    monkeypatch.setattr(kernel_search, "REPETITIONS", 1)
    monkeypatch.setattr(kernel_search, "HALVINGS", ())
    _, y_CHW = blurred("documents/scan-1400.png", movement())
    watched = []
    search = Search(
        Picture(images.to_pil(y_CHW)),
        on_inner=lambda info: watched.append(info.iteration / info.inner_steps),
    )
    found = BlindBlur(method="free_kernel", chains=2).find(search)
    assert isinstance(found.operator, KernelBlur)
    told = found.kernel_search
    assert told is not None
    assert told.support > 0
    assert told.kernel == found.operator.kernel
    assert len(told.path) > 4, "the kernels of every resolution"
    assert "by 2 searches, whose results differ by" in found.text
    true = light_of(movement())
    assert likeness(light_of(found.operator), true) > 0.95
    for width in (1.0, 1.5, 2.0, 2.5):
        assert likeness(light_of(GaussianBlur(sigma=width)), true) < 0.88
    assert watched == sorted(watched)
    assert 0.5 < watched[-1] <= 1, "the search reports its progress"


def shorten(monkeypatch):
    """Makes the search short; its result is not examined."""
    monkeypatch.setattr(kernel_search, "PRICES", (1e-2,))
    monkeypatch.setattr(kernel_search, "HALVINGS", ())
    monkeypatch.setattr(kernel_search, "LONG", 2)


def test_the_search_can_be_cancelled():
    _, y_CHW = blurred("documents/scan-1400.png", movement())
    with pytest.raises(SamplingCancelled):
        kernel_search.kernel_of(
            images.to_pil(y_CHW), GaussianBlur(sigma=2.0), on_inner=lambda _: False
        )


def estimate(support):
    return KernelEstimate(torch.full((3, 3), 1 / 9), [torch.ones(1, 1)], 0.02, support)


@pytest.mark.parametrize(("side", "width"), [(24, 1.0), (40, 6.0), (200, 30.0)])
def test_any_size_of_picture_and_blur_can_be_searched(monkeypatch, side, width):
    """A blur may reach farther than a kernel has pixels, and the picture be smaller than one."""
    noise_CHW = torch.rand(3, side, side, generator=torch.Generator().manual_seed(0))
    shorten(monkeypatch)
    found = kernel_search.kernel_of(images.to_pil(noise_CHW), GaussianBlur(sigma=width))
    assert found.kernel_KK.shape[0] <= KERNEL_SIDE
    assert float(found.kernel_KK.sum()) == pytest.approx(1)


def test_without_support_the_family_is_used_and_that_is_said(monkeypatch):
    true = LinearMotionBlur(length=9, angle=60)
    _, y_CHW = blurred("documents/scan-1400.png", true)
    search = Search(Picture(images.to_pil(y_CHW)))
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


def test_a_page_without_any_blur_has_nothing_to_restore(monkeypatch):
    shorten(monkeypatch)
    page = images.open_image((EXAMPLES / "documents/page-quattrocento.png").read_bytes())
    with pytest.raises(NothingToRestore, match="does not support a free kernel"):
        BlindBlur(method="free_kernel").find(Search(page))


def test_photographs_get_the_blur_of_a_family_unless_the_camera_shook(monkeypatch):
    monkeypatch.setattr(kernel_search, "kernel_of", lambda *_, **__: estimate(1.0))
    _, y_CHW = blurred("photos/raccoon.png", LinearMotionBlur(length=13, angle=20))
    found = BlindBlur(method="free_kernel").find(Search(Picture(images.to_pil(y_CHW))))
    assert isinstance(found.operator, LinearMotionBlur)
    assert found.kernel_search is None
    assert "only if the diagnosis finds that the camera shook" in found.unsure[-1]
    _, y_CHW = blurred("photos/raccoon.png", bow())
    found = BlindBlur(method="free_kernel").find(Search(Picture(images.to_pil(y_CHW))))
    assert isinstance(found.operator, KernelBlur)


@pytest.mark.parametrize("name", ["photos/raccoon.png", "documents/scan-1400.png"])
def test_auto_searches_the_blur_of_a_shaken_camera(monkeypatch, name):
    _, y_CHW = blurred(name, bow())
    search = Search(Picture(images.to_pil(y_CHW)))
    monkeypatch.setattr(kernel_search, "kernel_of", lambda *_, **__: estimate(1.0))
    found = Auto().find(search)
    assert isinstance(found.operator, KernelBlur)
    assert found.asked == "auto"
    assert "shaken camera" in found.text
    monkeypatch.setattr(kernel_search, "kernel_of", lambda *_, **__: estimate(-1.0))
    with pytest.raises(NothingToRestore, match="does not support a free kernel"):
        Auto().find(search)
    with pytest.raises(NothingToRestore, match="'free_kernel'"):
        BlindBlur().find(search)


def test_a_shaken_camera_and_jpeg_are_undone_together(monkeypatch):
    _, y_CHW = blurred("documents/scan-1400.png", bow(), 0.005)
    file = io.BytesIO()
    images.to_pil(y_CHW).save(file, "JPEG", quality=60)
    monkeypatch.setattr(kernel_search, "kernel_of", lambda *_, **__: estimate(1.0))
    found = Auto().find(Search(images.open_image(file.getvalue())))
    assert isinstance(found.operator, Compose)
    assert [stage.type for stage in found.operator.stages] == ["kernel_blur", "jpeg"]
