"""The convolutional prior: what it is told, any grid, its checkpoint folder; and the sampler that
tells it the first estimate."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from aps_core.errors import InvalidSpec, WeightsInvalid
from aps_core.imaging.total_variation import total_variation_estimate
from aps_core.priors.convolutional.network import (
    ConvolutionalConfig,
    ConvolutionalNet,
    ConvolutionalPrior,
    load_convolutional,
)
from aps_core.samplers.plug_and_play import PlugAndPlay
from aps_core.sampling import driver
from aps_core.tasks.restore import RestoreSpec
from aps_core.theory.toy import GRID, TOLD, ToyPrior, ToyWorld
from aps_core.tokenizers.pixels import PixelTokenizer
from aps_core.types import (
    MASK,
    Grid,
    Sample,
    StepInfo,
    ToldPrior,
)

CONFIG = ConvolutionalConfig(bits=6, width=16, blocks=2, kernel=3, patch=2)
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


def test_nothing_told_is_no_estimate_at_all(prior: ConvolutionalPrior) -> None:
    z_BL, grid = tokens((4, 6)), (4, 6)
    asked = prior.logits(z_BL, grid=grid, **ASKED)
    assert asked.shape == (2, 24, 64)
    nobody = torch.zeros(2, dtype=torch.bool)
    untold = prior.net.told(z_BL, pictures(grid), prior.tokenizer, grid, nobody)
    torch.testing.assert_close(asked, untold)
    assert not torch.allclose(asked, prior.logits_told(z_BL, pictures(grid), grid))


def test_an_untrained_network_believes_what_it_is_told() -> None:
    prior = ConvolutionalPrior(ConvolutionalNet(CONFIG), PixelTokenizer())
    x_BCHW, grid = pictures((8, 8)), (8, 8)
    z_BL = tokens(grid, decided=0.2)
    codes_BL = prior.tokenizer.encode(x_BCHW)
    told = prior.logits_told(z_BL, x_BCHW, grid)
    assert torch.equal(told.argmax(-1)[z_BL == MASK], codes_BL[z_BL == MASK])


def test_what_the_network_judges_wrong_is_believed_less() -> None:
    prior = ConvolutionalPrior(ConvolutionalNet(CONFIG), PixelTokenizer())
    x_BCHW, grid = pictures((8, 8)), (8, 8)
    z_BL = torch.full((2, 64), MASK)
    certainty = []
    for judged in (-2.0, 0.0, 2.0):
        prior.net.head.bias[-(CONFIG.patch**2) :] = judged
        certainty.append(prior.logits_told(z_BL, x_BCHW, grid).softmax(-1).amax(-1).mean())
    assert certainty[0] > 1.5 * certainty[1] > 2 * certainty[2]


@pytest.mark.parametrize("grid", [(5, 7), (6, 3), (1, 1)])
def test_any_grid_is_read_whole(prior: ConvolutionalPrior, grid: tuple[int, int]) -> None:
    """An odd grid is an even one whose last row and column are unknown."""
    rows, columns = grid
    z_BL = tokens(grid)
    even = torch.nn.functional.pad(
        z_BL.view(2, rows, columns), (0, columns % 2, 0, rows % 2), value=MASK
    )
    expected = prior.logits(even.flatten(1), grid=(even.shape[1], even.shape[2]), **ASKED)
    expected = expected.view(2, *even.shape[1:], 64)[:, :rows, :columns].flatten(1, 2)
    torch.testing.assert_close(prior.logits(z_BL, grid=grid, **ASKED), expected)


def test_a_folder_loads_and_errors_name_what_is_wrong(prior: ConvolutionalPrior, tmp_path) -> None:
    save_file(prior.net.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(CONFIG.model_dump_json())
    again = load_convolutional(tmp_path, PixelTokenizer(), "cpu", torch.float32)
    assert isinstance(again, ToldPrior)
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


def test_the_toy_prior_told_a_picture_follows_bayes_rule() -> None:
    """What it is told counts as a Gaussian observation of the picture does."""
    prior = ToyPrior(1)
    z_BL = torch.tensor([[2, MASK, MASK, MASK]])
    x_BCHW = pictures(GRID)[:1]
    told = prior.logits_told(z_BL, x_BCHW, GRID)[0].softmax(-1)
    expected = torch.zeros(4, 4)
    for state_L, p in zip(prior.states_SL, prior.p_S, strict=True):
        if state_L[0] == 2:
            picture = prior.tokenizer.decode(prior.tokenizer.codebook_KD[state_L][None], GRID)
            likely = (-(picture - x_BCHW).square().sum() / 2 / TOLD**2).exp()
            expected[torch.arange(4), state_L] += p * likely
    torch.testing.assert_close(told, expected / expected.sum(1, keepdim=True))


class Listener(ToyPrior):
    """Remembers what it is told."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.heard: list[Tensor] = []

    def logits_told(self, z_BL: Tensor, crude_BCHW: Tensor, grid: Grid) -> Tensor:
        self.heard.append(crude_BCHW)
        return super().logits_told(z_BL, crude_BCHW, grid)


def listening(batch: int = 1, **options: Any) -> tuple[ToyWorld, Listener, Sample, list[StepInfo]]:
    world = ToyWorld(3)
    world.prior = Listener(3)
    sampler = PlugAndPlay(steps=3, inner_steps=3)
    generator, infos = torch.Generator().manual_seed(0), list[StepInfo]()
    result = driver.sample(
        world.prior,
        world.objective,
        sampler,
        grid=GRID,
        generator=generator,
        batch=batch,
        on_step=infos.append,
        **options,
    )
    return world, world.prior, result, infos


def test_every_round_tells_the_last_estimate() -> None:
    world, prior, result, infos = listening()
    assert len(prior.heard) == 3
    first = total_variation_estimate(world.objective, torch.zeros(1, 3, *GRID))
    estimates = [first, *(info.x_hat_BCHW for info in infos)]
    for heard, estimate in zip(prior.heard, estimates, strict=False):
        torch.testing.assert_close(heard, estimate.clamp(-1, 1), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(result.x_BCHW, estimates[-1].clamp(-1, 1), atol=1e-3, rtol=1e-3)


def test_no_token_is_decided_before_the_last_round() -> None:
    world, _, result, infos = listening()
    assert [bool((info.state.z_BL == MASK).all()) for info in infos] == [True, True, False]
    assert torch.equal(result.z_BL, world.prior.tokenizer.encode(infos[-1].x_hat_BCHW))


def test_a_fit_agrees_with_the_measurement_and_is_held_back_by_the_prior() -> None:
    world = ToyWorld(3)
    misfits = {}
    for weight in (0.0, 1.0, 100.0):
        sampler = PlugAndPlay(steps=1, inner_steps=60, prior_weight=weight)
        generator = torch.Generator().manual_seed(0)
        infos: list[StepInfo] = []
        driver.sample(
            world.prior,
            world.objective,
            sampler,
            grid=GRID,
            generator=generator,
            on_step=infos.append,
        )
        misfits[weight] = infos[0].misfit
    assert misfits[0.0] < misfits[1.0] < misfits[100.0]


def test_several_samples_differ_and_one_repeats() -> None:
    several = listening(batch=4)[1].heard[1]
    assert several.flatten(1).std(0).mean() > 0.05
    torch.testing.assert_close(listening()[2].x_BCHW, listening()[2].x_BCHW)


def test_a_resumed_run_tells_the_same() -> None:
    _, prior, whole, infos = listening(batch=2)
    _, again, resumed, _ = listening(batch=2, resume=infos[0].state)
    assert len(again.heard) == 2
    for heard, before in zip(again.heard, prior.heard[1:], strict=True):
        torch.testing.assert_close(heard, before)
    torch.testing.assert_close(resumed.z_BL, whole.z_BL)
    torch.testing.assert_close(resumed.x_BCHW, whole.x_BCHW)


def test_a_prior_that_cannot_be_told_is_refused() -> None:
    world = ToyWorld(0)
    deaf = cast(Any, SimpleNamespace(tokenizer=world.prior.tokenizer, logits=world.prior.logits))
    with pytest.raises(InvalidSpec, match="needs a prior that can be told"):
        driver.sample(
            deaf,
            world.objective,
            PlugAndPlay(steps=1),
            grid=GRID,
            generator=torch.Generator().manual_seed(0),
        )


def test_a_job_with_another_prior_is_refused_at_once() -> None:
    spec = RestoreSpec.model_validate(
        {
            "prior": "embedded",
            "operator": {"type": "denoise"},
            "sampler": {"type": "plug_and_play"},
        }
    )
    with pytest.raises(InvalidSpec, match="with 'embedded' choose one of: aps, "):
        spec.resolved()
