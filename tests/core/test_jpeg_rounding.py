"""What a JPEG rounds off, as the noise of a likelihood."""

import io
from pathlib import Path

import pytest
import torch
from torch import Tensor

from aps_core import Measurement, restore
from aps_core.evaluation import Setup, make_case
from aps_core.evaluation.metrics import psnr
from aps_core.imaging import images
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import Bound
from aps_core.operators.compose import Compose
from aps_core.operators.denoise import Denoise
from aps_core.operators.jpeg import JPEG, TO_YCC, RoundingNoise
from aps_core.samplers.plug_and_play import PlugAndPlay
from aps_core.sampling import driver
from aps_core.types import StepInfo
from tests.engines import image_engine

PAGES = sorted((Path(__file__).parents[2] / "examples" / "documents").glob("*.png"))
SAME = Bound(lambda x_BCHW: x_BCHW)


def rounded_noise(quality: int, white: float, generator: torch.Generator) -> Tensor:
    """Uniform errors of all coefficients, and white noise, for 64x80 pixels; chroma's errors are
    twice as large, as the likelihood takes them.
    """
    steps_C88 = JPEG(quality=quality)._tables("cpu") * torch.tensor([1.0, 2.0, 2.0])[:, None, None]
    errors = torch.rand(3, 8, 10, 8, 8, generator=generator) - 0.5
    n = torch.arange(8)
    waves = torch.cos((2 * n + 1) * n[:, None] * torch.pi / 16) / 2
    waves[0] /= 2**0.5
    blocks = torch.einsum(
        "cvuij,ia,jb->cvaub", errors * steps_C88[:, None, None], waves, waves
    ).reshape(3, 64, 80)
    rgb = torch.einsum("ij,jhw->ihw", torch.tensor(TO_YCC).inverse(), blocks) / 127.5
    return rgb + white * torch.randn(3, 64, 80, generator=generator)


@pytest.mark.parametrize("quality", [20, 80])
@pytest.mark.parametrize("white", [0.0, 0.05])
def test_rounding_and_noise_have_the_misfit_of_the_noise_floor(quality, white):
    y = rounded_noise(quality, white, torch.Generator().manual_seed(0))
    noise = JPEG(quality=quality).likelihood_noise(white)
    objective = MeasurementObjective(SAME, y, noise, "l2").whitened()
    _, misfit = objective(torch.zeros(1, 3, 64, 80))
    assert misfit.item() == pytest.approx(objective.noise_floor, rel=0.05)
    nats = objective.negative_log_likelihood(torch.zeros(1, 3, 64, 80))
    assert nats.item() == pytest.approx(y.numel() / 2, rel=0.05)


def test_fine_detail_may_differ_more_than_large_areas():
    objective = MeasurementObjective(
        SAME, torch.zeros(3, 64, 64), JPEG(quality=30).likelihood_noise(0.0), "l2"
    ).whitened()
    checks = 0.1 * (-1.0) ** (torch.arange(64) + torch.arange(64)[:, None]).expand(1, 3, 64, 64)
    areas = torch.full((1, 3, 64, 64), 0.1)
    fine, coarse = (objective.negative_log_likelihood(x).item() for x in (checks, areas))
    assert fine < 0.1 * coarse


@pytest.mark.parametrize("side", [61, 8, 3])
def test_pictures_without_whole_blocks_say_no_more_than_their_pixels(side):
    y = torch.full((3, side, side), 0.2)
    whole = torch.full((3, 64, 64), 0.2)
    noise = JPEG(quality=50).likelihood_noise(0.01)
    nats, more = (
        MeasurementObjective(SAME, each, noise, "l2")
        .whitened()
        .negative_log_likelihood(torch.zeros_like(each)[None])
        .item()
        for each in (y, whole)
    )
    assert nats / side**2 == pytest.approx(more / 64**2, rel=1e-4)


def test_only_the_last_stage_rounds_coefficients():
    """Whatever comes later changes what was rounded."""
    blur, jpeg = {"type": "gaussian_blur"}, {"type": "jpeg", "quality": 30}
    last, first = (
        Compose.model_validate({"stages": stages}) for stages in ([blur, jpeg], [jpeg, blur])
    )
    assert isinstance(last.likelihood_noise(0.05), RoundingNoise)
    rounding = JPEG(quality=30).rounding
    assert first.likelihood_noise(0.05) == pytest.approx((0.05**2 + 4 * rounding**2) ** 0.5)
    assert Denoise().likelihood_noise(0.05) == 0.05


def test_a_verdict_takes_at_least_the_rounding_for_noise():
    jpeg = JPEG(quality=30)
    assert jpeg.judged_noise(0.0) == jpeg.rounding
    assert jpeg.judged_noise(0.5) == 0.5
    judged = jpeg.judged_noise(torch.tensor([0.0, 0.5]))
    assert isinstance(judged, Tensor)
    assert judged.tolist() == pytest.approx([jpeg.rounding, 0.5])


@pytest.mark.parametrize("corner", [0, 3])
def test_jpegs_of_pages_are_restored_beyond_their_first_estimate(corner):
    """Of a common encoder, which halves the resolution of chroma; cut anywhere."""
    engine = image_engine("embedded_documents")
    gains, firsts = [], []

    def keep(info: StepInfo) -> None:
        if info.state.step == 1:
            firsts.append(info.state.carried["first"].float())

    for page in PAGES[:3]:
        whole = images.to_tensor(images.open_image(page.read_bytes()))[:, :96, :96]
        file = io.BytesIO()
        images.to_pil(whole).save(file, "JPEG", quality=40)
        y = images.to_tensor(images.open_image(file.getvalue()))[:, corner:, corner:]
        restored = restore(Measurement(y, JPEG(quality=40)), engine, on_step=keep).pictures_BCHW
        x = whole[None, :, corner:, corner:]
        height, width = x.shape[2:]
        gains.append(psnr(restored, x) - psnr(firsts[-1][..., :height, :width], x))
    assert torch.cat(gains).mean() > 0.7  # 0.1 as white noise


def test_rounding_counts_as_white_noise_until_it_is_whitened():
    """Total variation, which has no scale for every frequency, would lose 3 dB."""
    noise = JPEG(quality=30).likelihood_noise(0.0)
    x = 0.1 * torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(3, 16, 16)
    coloured = MeasurementObjective(SAME, y, noise, "l2")
    white = MeasurementObjective(SAME, y, noise.deviation, "l2")
    torch.testing.assert_close(coloured(x), white(x))
    torch.testing.assert_close(white.whitened()(x), white(x))
    assert float(coloured.whitened()(x)[0]) < 0.8 * float(coloured(x)[0])


def test_rounds_of_a_jpeg_go_on_from_the_last():
    """Unlike those of white noise: its estimates err otherwise than those that were shrunk."""
    engine = image_engine("embedded_documents")
    x = images.to_tensor(images.open_image(PAGES[0].read_bytes()))[:, :32, :32]
    case = make_case(engine, Setup.recommended(engine), "native", "jpeg", "page", x, 0.05, 0)
    estimates = []
    driver.sample(
        engine.prior,
        case.objective,
        PlugAndPlay(steps=3, inner_steps=5),
        grid=(32, 32),
        generator=torch.Generator(),
        on_step=lambda info: estimates.append(info.state.carried["estimate"]),
    )
    assert not torch.equal(estimates[0], estimates[1])
