"""The convolutional prior: what it is given, any grid, its checkpoint folder."""

import json
import math
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from aps_core.errors import WeightsInvalid
from aps_core.priors.convolutional.network import (
    ConvolutionalConfig,
    ConvolutionalNet,
    ConvolutionalPrior,
    load_convolutional,
)
from aps_core.tokenizers.pixels import (
    PixelTokenizer,
    brightness,
    of_codes,
)
from aps_core.types import MASK, DenoisingPrior

CONFIG = ConvolutionalConfig(bits=6, width=16, blocks=2, kernel=3, patch=2)
CONTINUOUS = CONFIG.model_copy(update={"continuous": True})
ASKED: dict[str, Any] = {"mask_fraction": 0.5, "condition": "", "guidance_scale": 0.0}


@pytest.fixture
def prior() -> ConvolutionalPrior:
    torch.manual_seed(0)
    net = ConvolutionalNet(CONFIG)
    nn.init.normal_(net.head.weight, std=0.1)
    return ConvolutionalPrior(net, PixelTokenizer())


def tokens(grid: tuple[int, int], decided: float = 0.5) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    z_BL = torch.randint(0, 64, (2, grid[0] * grid[1]), generator=generator)
    return z_BL.masked_fill(torch.rand(z_BL.shape, generator=generator) > decided, MASK)


def pictures(grid: tuple[int, int]) -> Tensor:
    return torch.rand(2, 3, *grid, generator=torch.Generator().manual_seed(2)) * 2 - 1


def test_nothing_given_is_no_estimate_at_all(prior: ConvolutionalPrior) -> None:
    z_BL, grid = tokens((4, 6)), (4, 6)
    asked = prior.logits(z_BL, grid=grid, **ASKED)
    assert asked.shape == (2, 24, 64)
    nobody = torch.zeros(2, dtype=torch.bool)
    x_BCHW = pictures(grid)
    said = prior.net.answer(z_BL, x_BCHW, x_BCHW, nobody, prior.tokenizer, grid)
    torch.testing.assert_close(asked, of_codes(said.y_BLY, said.colour_BL4))
    assert torch.equal(said.weight_BL, torch.ones(2, 24))
    denoised = prior.denoise(x_BCHW, x_BCHW)
    assert not torch.allclose(said.mean_BL, denoised.mean_BL, atol=0.01)


@pytest.mark.parametrize("config", [CONFIG, CONTINUOUS])
def test_an_untrained_network_believes_what_it_is_told(config: ConvolutionalConfig) -> None:
    prior = ConvolutionalPrior(ConvolutionalNet(config), PixelTokenizer())
    x_BCHW = pictures((8, 8))
    said = prior.denoise(x_BCHW, 0 * x_BCHW)
    assert torch.equal(said.weight_BL, torch.ones(2, 64))
    y_BHW = brightness(x_BCHW)
    inner_BL = y_BHW.flatten(1).abs() < 0.5
    off_BL = said.mean_BL - y_BHW.flatten(1)
    assert off_BL[inner_BL].abs().max() < (0.02 if not config.continuous else 1e-6)
    torch.testing.assert_close(said.colours_BCHW + y_BHW[:, None], x_BCHW)


@pytest.mark.parametrize("config", [CONFIG, CONTINUOUS])
def test_what_the_network_judges_wrong_is_believed_less(config: ConvolutionalConfig) -> None:
    prior = ConvolutionalPrior(ConvolutionalNet(config), PixelTokenizer())
    x_BCHW = pictures((8, 8))
    deviations = []
    for judged in (-2.0, 0.0, 2.0):
        output(prior, 20).fill_(judged)
        said = prior.denoise(x_BCHW, x_BCHW)
        deviations.append(said.variance_BL.sqrt().mean())
    assert 4 * deviations[0] < 2 * deviations[1] < deviations[2]


def test_a_continuous_network_shifts_the_estimate() -> None:
    prior = ConvolutionalPrior(ConvolutionalNet(CONTINUOUS), PixelTokenizer())
    x_BCHW, grid = pictures((8, 8)), (8, 8)
    output(prior, 24).fill_(2.0)
    said = prior.denoise(x_BCHW, x_BCHW)
    torch.testing.assert_close(said.mean_BL, brightness(x_BCHW).flatten(1) + 0.1)
    alone = prior.logits(torch.full((2, 64), MASK), grid=grid, **ASKED)
    assert torch.equal(alone, torch.zeros(2, 64, 64)), "a masked prior as well"


def output(prior: ConvolutionalPrior, number: int) -> Tensor:
    """Biases of one of the network's outputs, for all pixels of a patch."""
    return prior.net.head.bias.view(-1, CONFIG.patch**2)[number]


def test_the_network_says_how_firmly_pixels_hold_and_reads_where_the_measurement_pulls(
    prior: ConvolutionalPrior,
) -> None:
    x_BCHW = pictures((8, 8))
    before = prior.denoise(x_BCHW, x_BCHW)
    output(prior, 23).add_(1.0)
    after = prior.denoise(x_BCHW, x_BCHW)
    torch.testing.assert_close(after.weight_BL / before.weight_BL, torch.full((2, 64), math.e))
    torch.testing.assert_close(after.mean_BL, before.mean_BL)
    torch.testing.assert_close(after.variance_BL, before.variance_BL)
    pulled = prior.denoise(x_BCHW, -x_BCHW)
    assert not torch.allclose(pulled.mean_BL, after.mean_BL, atol=0.01)


def test_colours_are_corrected_and_brightness_is_not() -> None:
    prior = ConvolutionalPrior(ConvolutionalNet(CONFIG), PixelTokenizer())
    x_BCHW = pictures((8, 8))
    before_BCHW = prior.denoise(x_BCHW, x_BCHW).colours_BCHW
    output(prior, 22).fill_(1.0)
    after_BCHW = prior.denoise(x_BCHW, x_BCHW).colours_BCHW
    change_BCHW = after_BCHW - before_BCHW
    assert (change_BCHW[:, 0] > 0.05).all()  # red
    assert brightness(change_BCHW).abs().max() < 1e-6


@pytest.mark.parametrize("grid", [(5, 7), (6, 3), (1, 1)])
@pytest.mark.parametrize("coarse_blocks", [0, 1])
def test_beyond_any_grid_its_border_goes_on(grid: tuple[int, int], coarse_blocks: int) -> None:
    """To full squares of positions, as in training."""
    shape = {"coarse_blocks": coarse_blocks, "coarse_width": 8}
    net = ConvolutionalNet(CONFIG.model_copy(update=shape))
    nn.init.normal_(net.head.weight, std=0.1)
    prior, side = ConvolutionalPrior(net, PixelTokenizer()), 4 if coarse_blocks else 2
    (rows, columns), z_BL = grid, tokens(grid)
    beyond = (0, -columns % side, 0, -rows % side)
    full_Bhw = nn.functional.pad(z_BL.view(2, *grid).float(), beyond, "replicate").long()
    full = (full_Bhw.shape[1], full_Bhw.shape[2])
    expected = prior.logits(full_Bhw.flatten(1), grid=full, **ASKED)
    expected = expected.view(2, *full, 64)[:, :rows, :columns].flatten(1, 2)
    torch.testing.assert_close(prior.logits(z_BL, grid=grid, **ASKED), expected)


def test_a_folder_loads_and_errors_name_what_is_wrong(prior: ConvolutionalPrior, tmp_path) -> None:
    save_file(prior.net.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(CONFIG.model_dump_json())
    again = load_convolutional(tmp_path, PixelTokenizer(), "cpu", torch.float32)
    assert isinstance(again, DenoisingPrior)
    z_BL = tokens((4, 4))
    torch.testing.assert_close(
        again.logits(z_BL, grid=(4, 4), **ASKED), prior.logits(z_BL, grid=(4, 4), **ASKED)
    )
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG.model_dump(), "bits": 3}))
    with pytest.raises(WeightsInvalid, match="knows 8 codes, the tokenizer 64"):
        load_convolutional(tmp_path, PixelTokenizer(), "cpu", torch.float32)
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG.model_dump(), "width": 32}))
    with pytest.raises(WeightsInvalid, match="shape"):
        load_convolutional(tmp_path, PixelTokenizer(), "cpu", torch.float32)


@pytest.mark.parametrize("grid", [(8, 12), (12, 20)])
def test_coarse_blocks_join_a_trained_network_and_see_further(grid: tuple[int, int]) -> None:
    prior = ConvolutionalPrior(ConvolutionalNet(CONFIG), PixelTokenizer())
    nn.init.normal_(prior.net.head.weight, std=0.1)
    grown = ConvolutionalNet(CONFIG.model_copy(update={"coarse_blocks": 1, "coarse_width": 8}))
    grown.load_state_dict({**grown.state_dict(), **prior.net.state_dict()})
    after = ConvolutionalPrior(grown, prior.tokenizer)
    z_BL = tokens(grid)
    before_BLK = prior.logits(z_BL, grid=grid, **ASKED)
    torch.testing.assert_close(after.logits(z_BL, grid=grid, **ASKED), before_BLK)

    assert grown.coarse is not None
    nn.init.normal_(grown.coarse.up.weight, std=0.1)
    rows, columns = grid
    other_BL = z_BL.clone()
    other_BL.view(2, rows, columns)[:, :, :2] = 63  # two blocks of 3x3 reach three positions on

    def reached(asked: ConvolutionalPrior) -> Tensor:
        change_BLK = asked.logits(other_BL, grid=grid, **ASKED) - asked.logits(
            z_BL, grid=grid, **ASKED
        )
        return change_BLK.abs().amax(-1).view(2, rows, columns)[:, :, 6:]

    assert reached(prior).amax() < 1e-5 < reached(after).amax()
