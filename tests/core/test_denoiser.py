"""The denoiser of photographs: its network, its checkpoint folder, and what it gains."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from aps_core import evaluation
from aps_core.engines.engine import ImageEngine
from aps_core.errors import WeightsInvalid
from aps_core.evaluation.metrics import psnr
from aps_core.operators import OperatorSpec
from aps_core.priors.denoising.network import (
    LEAST_SIGMA,
    DenoiserConfig,
    DenoiserNet,
    NoiseDenoiser,
    load_denoiser,
)
from aps_core.priors.embedded.denoiser import EmbeddedDenoiserPrior
from aps_core.tokenizers.pixels import PixelTokenizer
from aps_core.types import NoisePrior

PHOTOS = Path(__file__).parents[2] / "examples" / "photos"
NAMES = ("chelsea", "coffee", "hedgehog", "garden")
CONFIG = DenoiserConfig(widths=(8, 12, 8), down=(1, 1), lowest=1, up=(1, 1), judge=4)


def network() -> DenoiserNet:
    torch.manual_seed(0)
    net = DenoiserNet(CONFIG)
    for weight in net.parameters():
        nn.init.normal_(weight, std=0.05)
    return net


def pictures(rows: int, columns: int) -> Tensor:
    return torch.rand(2, 3, rows, columns, generator=torch.Generator().manual_seed(2)) * 2 - 1


@pytest.fixture(scope="module")
def engine() -> ImageEngine:
    return ImageEngine.load("embedded_denoiser")


def test_pictures_have_any_size_and_their_corner_does_not_depend_on_it() -> None:
    prior = NoiseDenoiser(network(), PixelTokenizer())
    assert isinstance(prior, NoisePrior)
    x_BCHW = pictures(61, 75)
    mean_BCHW, deviation_BHW = prior.without_noise(x_BCHW, 0.1)
    assert mean_BCHW.shape == x_BCHW.shape
    assert deviation_BHW.shape == (2, 61, 75)
    assert deviation_BHW.min() > 0
    smaller_BCHW, _ = prior.without_noise(x_BCHW[..., :56, :56], 0.1)
    torch.testing.assert_close(smaller_BCHW[..., :8, :8], mean_BCHW[..., :8, :8])


def test_answers_scale_with_pictures_and_noise() -> None:
    """So levels that training lacked are no surprise."""
    prior = NoiseDenoiser(network(), PixelTokenizer())
    mean_BCHW, deviation_BHW = prior.without_noise(pictures(16, 16), 0.2)
    half_BCHW, less_BHW = prior.without_noise(pictures(16, 16) / 2, 0.1)
    torch.testing.assert_close(half_BCHW, mean_BCHW / 2)
    torch.testing.assert_close(less_BHW, deviation_BHW / 2)


def test_little_noise_changes_little() -> None:
    prior, x_BCHW = NoiseDenoiser(network(), PixelTokenizer()), pictures(16, 16)
    least_BCHW, deviation_BHW = prior.without_noise(x_BCHW, LEAST_SIGMA)
    mean_BCHW, less_BHW = prior.without_noise(x_BCHW, LEAST_SIGMA / 8)
    torch.testing.assert_close(mean_BCHW - x_BCHW, (least_BCHW - x_BCHW) / 8)
    torch.testing.assert_close(less_BHW, deviation_BHW / 8)


def test_a_folder_is_loaded_and_wrong_weights_are_refused(tmp_path: Path) -> None:
    net = network()
    (tmp_path / "config.json").write_text(CONFIG.model_dump_json())
    save_file(net.state_dict(), tmp_path / "model.safetensors")
    again = load_denoiser(tmp_path, "cpu", torch.float32)
    asked = pictures(8, 8), 0.1
    expected = NoiseDenoiser(net, PixelTokenizer()).without_noise(*asked)
    torch.testing.assert_close(again.without_noise(*asked), expected)
    wider = CONFIG.model_copy(update={"judge": 5})
    (tmp_path / "config.json").write_text(wider.model_dump_json())
    with pytest.raises(WeightsInvalid, match="judge"):
        load_denoiser(tmp_path, "cpu", torch.float32)


def test_only_its_own_sampler_is_offered(engine: ImageEngine) -> None:
    """It cannot tell tokens apart."""
    assert EmbeddedDenoiserPrior.samplers() == ["half_quadratic"]
    z_BL = torch.zeros(1, 4, dtype=torch.long)
    asked: dict[str, Any] = {"mask_fraction": 1.0, "condition": "", "guidance_scale": 0.0}
    assert not engine.prior.logits(z_BL, grid=(2, 2), **asked).any()


@pytest.mark.parametrize("task", ["denoise", "gaussian_blur", "sr2", "sr4"])
def test_restorations_of_withheld_photographs_beat_shrinkage(
    engine: ImageEngine, task: str
) -> None:
    setup, gains = evaluation.Setup.recommended(engine), []
    found = dict(evaluation.photographs(PHOTOS, 128))
    for name in NAMES:
        x_CHW = found[name]
        case = evaluation.make_case(engine, setup, "native", task, name, x_CHW, 0.05, 0)
        variant = evaluation.Variant(engine.spec.restoring_sampler)
        restored, _, _ = evaluation.run_method(engine, setup, case, variant, 0)
        classical = evaluation.BASELINES["shrinkage"](case)
        gains.append(float(psnr(restored, x_CHW[None]) - psnr(classical, x_CHW[None])))
    assert sum(gains) / len(gains) > 0.1


@pytest.mark.parametrize("sigma", [0.05, 0.2])
def test_what_remains_of_noise_is_as_large_as_expected(engine: ImageEngine, sigma: float) -> None:
    """On average, within a third."""
    assert isinstance(engine.prior, NoisePrior)
    scores = []
    for name, x_CHW in evaluation.photographs(PHOTOS, 128):
        if name in NAMES:
            noise_CHW = torch.randn(x_CHW.shape, generator=torch.Generator().manual_seed(0))
            mean_BCHW, deviation_BHW = engine.prior.without_noise(
                (x_CHW + sigma * noise_CHW)[None], sigma
            )
            error_BHW = (mean_BCHW - x_CHW).square().mean(1)
            scores.append(float((error_BHW / deviation_BHW.square()).mean()))
    assert 0.55 < sum(scores) / len(scores) < 1.8


def test_it_is_chosen_for_operators_that_exist() -> None:
    operators = EmbeddedDenoiserPrior.operators
    assert operators is not None
    assert operators <= set(OperatorSpec.family)
