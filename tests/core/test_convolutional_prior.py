"""The convolutional prior: what it hears of undecided tokens, any grid, its checkpoint folder; and
the sampler that tells it the evidence."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from aps_core.errors import InvalidSpec, WeightsInvalid
from aps_core.imaging.total_variation import total_variation_estimate
from aps_core.priors.convolutional.network import (
    ConvolutionalConfig,
    ConvolutionalNet,
    ConvolutionalPrior,
    load_convolutional,
)
from aps_core.samplers.carried_evidence import CarriedEvidence
from aps_core.sampling import driver
from aps_core.theory.toy import GRID, ToyPrior, ToyWorld
from aps_core.tokenizers.quantizers import LookupFreeQuantizer
from aps_core.types import (
    MASK,
    EvidencePrior,
    Grid,
    Sample,
    SamplerState,
    StepInfo,
    Tokenizer,
)

CONFIG = ConvolutionalConfig(bits=3, width=16, blocks=2, kernel=3)
ASKED: dict[str, Any] = {"mask_fraction": 0.5, "condition": "", "guidance_scale": 0.0}


def tokenizer(bits: int = 3) -> Tokenizer:
    return cast(
        Tokenizer, SimpleNamespace(codebook_KD=LookupFreeQuantizer(bits).codebook_KD, stride=2)
    )


@pytest.fixture
def prior() -> ConvolutionalPrior:
    torch.manual_seed(0)
    return ConvolutionalPrior(ConvolutionalNet(CONFIG), tokenizer())


def tokens(grid: tuple[int, int], decided: float = 0.5) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    z_BL = torch.randint(0, 8, (2, grid[0] * grid[1]), generator=generator)
    return z_BL.masked_fill(torch.rand(z_BL.shape, generator=generator) > decided, MASK)


def test_a_token_without_evidence_is_a_masked_one(prior: ConvolutionalPrior) -> None:
    z_BL, grid = tokens((4, 6)), (4, 6)
    asked = prior.logits(z_BL, grid=grid, **ASKED)
    assert asked.shape == (2, 24, 8)
    torch.testing.assert_close(asked, prior.logits_given(z_BL, torch.zeros(2, 24, 3), grid))


def test_evidence_counts_for_undecided_tokens_alone(prior: ConvolutionalPrior) -> None:
    z_BL, grid = tokens((6, 6)), (6, 6)
    heard = torch.randn(2, 36, 3, generator=torch.Generator().manual_seed(2))
    told = prior.logits_given(z_BL, heard, grid)
    elsewhere = heard + 3.0 * (z_BL != MASK)[..., None]
    torch.testing.assert_close(told, prior.logits_given(z_BL, elsewhere, grid))
    assert not torch.allclose(told, prior.logits(z_BL, grid=grid, **ASKED))


@pytest.mark.parametrize("grid", [(5, 7), (6, 3), (1, 1)])
def test_any_grid_is_read_whole(prior: ConvolutionalPrior, grid: tuple[int, int]) -> None:
    """An odd grid is an even one whose last row and column are unknown."""
    rows, columns = grid
    z_BL = tokens(grid)
    even = torch.nn.functional.pad(
        z_BL.view(2, rows, columns), (0, columns % 2, 0, rows % 2), value=MASK
    )
    expected = prior.logits(even.flatten(1), grid=(even.shape[1], even.shape[2]), **ASKED)
    expected = expected.view(2, *even.shape[1:], 8)[:, :rows, :columns].flatten(1, 2)
    torch.testing.assert_close(prior.logits(z_BL, grid=grid, **ASKED), expected)


def test_a_folder_loads_and_errors_name_what_is_wrong(prior: ConvolutionalPrior, tmp_path) -> None:
    save_file(prior.net.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(CONFIG.model_dump_json())
    again = load_convolutional(tmp_path, tokenizer(), "cpu", torch.float32)
    assert isinstance(again, EvidencePrior)
    z_BL = tokens((4, 4))
    torch.testing.assert_close(
        again.logits(z_BL, grid=(4, 4), **ASKED), prior.logits(z_BL, grid=(4, 4), **ASKED)
    )
    with pytest.raises(WeightsInvalid, match="knows 8 codes, the tokenizer 16"):
        load_convolutional(tmp_path, tokenizer(4), "cpu", torch.float32)
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG.model_dump(), "width": 32}))
    with pytest.raises(WeightsInvalid, match="shape"):
        load_convolutional(tmp_path, tokenizer(), "cpu", torch.float32)


def test_the_toy_prior_with_evidence_is_bayes_rule() -> None:
    """Evidence of a token alone, of all codes but one: what that code says, tokens decided."""
    prior = ToyPrior(1)
    z_BL = torch.tensor([[2, MASK, MASK, MASK]])
    sure = torch.zeros(1, 4, 2)
    sure[0, 1] = 20 * prior.tokenizer.codebook_KD[3]
    told = prior.logits_given(z_BL, sure, GRID)[0, 2:].log_softmax(-1)
    decided = prior.logits(torch.tensor([[2, 3, MASK, MASK]]), grid=GRID, **ASKED)[0, 2:]
    torch.testing.assert_close(told, decided.log_softmax(-1), atol=1e-4, rtol=1e-4)


class Listener(ToyPrior):
    """Remembers what it is told."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.heard: list[Tensor] = []

    def logits_given(self, z_BL: Tensor, evidence_BLD: Tensor, grid: Grid) -> Tensor:
        self.heard.append(evidence_BLD)
        return super().logits_given(z_BL, evidence_BLD, grid)


def listening(told: float, **options: Any) -> tuple[ToyWorld, Listener, Sample]:
    world = ToyWorld(3)
    world.prior = Listener(3)
    sampler = CarriedEvidence(steps=3, inner_steps=3, told=told, start=0.0, temperature=0.0)
    generator = torch.Generator().manual_seed(0)
    result = driver.sample(
        world.prior, world.objective, sampler, grid=GRID, generator=generator, batch=2, **options
    )
    return world, world.prior, result


def test_the_prior_is_told_the_latent_of_the_first_estimate_in_every_step() -> None:
    world, prior, _ = listening(0.5)
    estimate = total_variation_estimate(world.objective, torch.zeros(2, 3, *GRID))
    latent_BLD = prior.tokenizer.features(estimate).flatten(2).transpose(1, 2)
    assert len(prior.heard) == 3
    for heard in prior.heard:
        torch.testing.assert_close(heard, 0.5 * latent_BLD)
    assert listening(0.0)[1].heard == []


def test_a_resumed_run_tells_the_same() -> None:
    states: list[SamplerState] = []

    def keep(info: StepInfo) -> None:
        states.append(info.state)

    _, prior, whole = listening(0.5, on_step=keep)
    _, again, resumed = listening(0.5, resume=states[0])
    torch.testing.assert_close(torch.stack(again.heard), torch.stack(prior.heard[1:]))
    torch.testing.assert_close(resumed.z_BL, whole.z_BL)
    torch.testing.assert_close(resumed.x_BCHW, whole.x_BCHW)


def test_a_prior_that_cannot_hear_is_refused() -> None:
    world = ToyWorld(0)
    deaf = cast(Any, SimpleNamespace(tokenizer=world.prior.tokenizer, logits=world.prior.logits))
    with pytest.raises(InvalidSpec, match="set 'told' to 0"):
        driver.sample(
            deaf,
            world.objective,
            CarriedEvidence(steps=1, told=1.0),
            grid=GRID,
            generator=torch.Generator().manual_seed(0),
        )
