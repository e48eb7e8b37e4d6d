"""The samplers APS is compared with: the defining step of each, on an enumerable problem."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from aps_core.aps import sample_aps
from aps_core.errors import InvalidSpec, SamplingCancelled, SamplingDiverged
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators.base import Bound
from aps_core.samplers import SamplerSpec
from aps_core.samplers.aps import APSConfig
from aps_core.samplers.carried_evidence import CarriedEvidence
from aps_core.samplers.g2d2 import (
    G2D2Config,
    divergence_with_gradient,
    reconsidered,
    variational_fit,
)
from aps_core.samplers.prior import PriorConfig, unmask
from aps_core.samplers.sgdd import SGDDConfig, denoise, hamming_log_odds, metropolis_hastings
from aps_core.samplers.svdd import SVDDConfig
from aps_core.sampling import driver
from aps_core.sampling.problem import Problem
from aps_core.theory.toy import CODES, GRID, LENGTH, ToyWorld
from aps_core.types import MASK
from tests.engines import image_engine

SAMPLERS: dict[str, tuple[Any, SamplerSpec]] = {
    "prior": (driver.sample, PriorConfig(steps=4)),
    "aps": (sample_aps, APSConfig(steps=4, inner_steps=5)),
    "g2d2": (driver.sample, G2D2Config(steps=4, inner_steps=5)),
    "sgdd": (driver.sample, SGDDConfig(steps=4, denoise_steps=3, mh_steps=5)),
    "svdd": (driver.sample, SVDDConfig(steps=4, candidates=5, temperature=1.0)),
}


@pytest.fixture
def world():
    return ToyWorld()


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def problem(world):
    return Problem(prior=world.prior, objective=world.objective, grid=GRID, generator=generator())


def draw(world, name, seed=0, **options):
    sampler, config = SAMPLERS[name]
    return sampler(
        world.prior,
        world.objective,
        config,
        grid=GRID,
        generator=generator(seed),
        **{"batch": 3, **options},
    )


@pytest.fixture(params=SAMPLERS)
def name(request):
    return request.param


# -- what all share -------------------------------------------------------------------------------


def test_resuming_after_any_step_gives_the_same_tokens(world, name):
    states = []
    whole = draw(world, name, batch=50, on_step=lambda info: states.append(info.state))
    assert [state.step for state in states] == [1, 2, 3, 4]
    assert torch.equal(states[-1].z_BL, whole.z_BL)
    assert ((whole.z_BL >= 0) & (whole.z_BL < CODES)).all()
    for state in states:
        frozen = replace(
            state, z_BL=state.z_BL.clone(), generator_state=state.generator_state.clone()
        )
        assert torch.equal(draw(world, name, batch=50, seed=99, resume=frozen).z_BL, whole.z_BL)


def test_runs_depend_only_on_the_seed(world, name):
    torch.manual_seed(1)
    first = draw(world, name, batch=50)
    torch.manual_seed(2)
    assert torch.equal(first.z_BL, draw(world, name, batch=50).z_BL)
    assert not torch.equal(first.z_BL, draw(world, name, batch=50, seed=1).z_BL)
    torch.testing.assert_close(first.misfit_B, world.objective(first.x_BCHW)[1])


def test_every_decode_records_a_loss(world, name):
    decode, calls, reported = world.prior.tokenizer.decode, [], []
    world.prior.tokenizer.decode = lambda *arguments: calls.append(1) or decode(*arguments)
    draw(world, name)
    count = len(calls)
    draw(world, name, on_step=lambda info: reported.append(len(info.loss_curve)))
    assert count == sum(reported) + 1
    assert reported == ([0] * 4 if name == "prior" else [6] * 4 if name == "sgdd" else [5] * 4)


@pytest.mark.parametrize(
    "config",
    [
        APSConfig(steps=3, inner_steps=4),
        G2D2Config(steps=3, inner_steps=4),
        CarriedEvidence(steps=3),
    ],
)
def test_the_inner_hook_sees_the_estimate_without_another_decode(world, config, monkeypatch):
    monkeypatch.setattr("aps_core.sampling.inner_watch.LOOK_CALLS", 1)
    decode, calls, seen, shown = world.prior.tokenizer.decode, [], [], []
    world.prior.tokenizer.decode = lambda *arguments: calls.append(1) or decode(*arguments)
    run = partial(
        driver.sample, world.prior, world.objective, config, grid=GRID, batch=2, graph=False
    )
    run(generator=generator())
    plain = len(calls)

    def look(info):
        if info.iteration == config.inner_steps and info.picture is not None:
            seen.append(info.picture().clone())

    run(generator=generator(), on_inner=look, on_step=lambda info: shown.append(info.x_hat_BCHW))
    assert len(calls) == 2 * plain
    assert len(seen) == config.steps
    torch.testing.assert_close(torch.stack(seen), torch.stack(shown))


def test_the_hook_can_cancel(world, name):
    with pytest.raises(SamplingCancelled, match="step 2 of 4"):
        draw(world, name, on_step=lambda info: info.state.step < 2)


@pytest.mark.parametrize(
    "method", [name for name in SamplerSpec.family if not SamplerSpec.named(name).needs_denoiser]
)
def test_a_picture_of_a_single_token_is_sampled(method):
    engine = image_engine("embedded")
    sampler = SamplerSpec.named(method).like(APSConfig(steps=3, inner_steps=2))
    sample = driver.sample(
        engine.prior,
        MeasurementObjective(Bound(lambda x: x), torch.zeros(3, 4, 4), 0.1),
        sampler,
        grid=(1, 1),
        generator=generator(),
        batch=2,
    )
    assert sample.z_BL.shape == (2, 1)
    assert sample.z_BL.min() >= 0


@pytest.mark.parametrize("method", SamplerSpec.family)
def test_every_sampler_has_settings_for_the_prior_alone(method):
    """A run without inner steps."""
    assert SamplerSpec.named(method).like(APSConfig(steps=3, inner_steps=0)).decodes >= 0


@pytest.mark.parametrize(
    "method", [name for name in SamplerSpec.family if not SamplerSpec.named(name).needs_denoiser]
)
def test_compared_methods_use_the_same_number_of_decodes(world, method):
    config, lengths = APSConfig(steps=6, inner_steps=4), []
    settings = SamplerSpec.named(method).like(config)
    driver.sample(
        world.prior,
        world.objective,
        settings,
        grid=GRID,
        generator=generator(),
        on_step=lambda info: lengths.append(len(info.loss_curve)),
    )
    assert lengths == {"prior_only": [0] * 6, "single_optimisation": [24]}.get(method, [4] * 6)


def test_settings_of_a_single_method_can_be_changed():
    settings = SamplerSpec.named("g2d2").like(APSConfig(steps=7), {"learning_rate": 3.0})
    assert settings == G2D2Config(steps=7, inner_steps=100, learning_rate=3.0, guidance_scale=3.5)
    with pytest.raises(ValidationError, match="momentum"):
        SamplerSpec.named("g2d2").like(APSConfig(), {"momentum": 1})


def test_other_steps_share_the_same_budget():
    config = APSConfig(steps=10, inner_steps=30)
    assert SamplerSpec.named("g2d2").like(config, {"steps": 15}) == G2D2Config(
        steps=15, inner_steps=20, guidance_scale=3.5
    )
    sgdd = SGDDConfig.like(config, {"steps": 5})
    assert (sgdd.steps, sgdd.mh_steps + 1) == (5, 60)
    svdd = SVDDConfig.like(config, {"steps": 15, "candidates": 3})
    assert (svdd.steps, svdd.candidates) == (15, 3), "what is named is taken as it is"
    few = G2D2Config.like(APSConfig(steps=2, inner_steps=3), {"steps": 15})
    assert (few.steps, few.inner_steps) == (6, 1), "no more steps than decodes"
    with pytest.raises(ValidationError, match="steps"):
        SamplerSpec.named("g2d2").like(config, {"steps": "many"})


# -- the prior alone ------------------------------------------------------------------------------


def test_unguided_generation_keeps_decided_tokens(world):
    z_BL = torch.tensor([[2, MASK, MASK, 1]])
    sample = driver.sample(
        world.prior, None, PriorConfig(steps=3), grid=GRID, generator=generator(), z_BL=z_BL
    )
    assert sample.z_BL[0, [0, 3]].tolist() == [2, 1]
    assert sample.misfit_B.tolist() == [0.0]


# -- SVDD -----------------------------------------------------------------------------------------


def test_svdd_with_one_candidate_equals_the_prior_sampler(world):
    config = SVDDConfig(steps=4, candidates=1)
    alone = driver.sample(
        world.prior, world.objective, config, grid=GRID, generator=generator(), batch=200
    )
    unguided = driver.sample(
        world.prior,
        world.objective,
        PriorConfig(steps=4, guidance_scale=0.0),
        grid=GRID,
        generator=generator(),
        batch=200,
    )
    assert torch.equal(alone.z_BL, unguided.z_BL)


def test_svdd_keeps_the_best_candidate_and_more_candidates_fit_better(world):
    misfit = {}
    for candidates in (1, 4, 32):
        config = SVDDConfig(steps=4, candidates=candidates)
        misfit[candidates] = driver.sample(
            world.prior, world.objective, config, grid=GRID, generator=generator(), batch=500
        ).misfit_B.mean()
    assert misfit[32] < misfit[4] < misfit[1]
    best, config = [], SVDDConfig(steps=1, candidates=16)
    chosen = driver.sample(
        world.prior,
        world.objective,
        config,
        grid=GRID,
        generator=generator(),
        on_step=lambda info: best.append(min(info.loss_curve)),
    )
    assert world.objective(chosen.x_BCHW)[0].item() == pytest.approx(best[0])


def test_svdd_resampling_approaches_the_posterior_for_one_step(world):
    """With T = 1, SVDD is importance resampling from the product of the prior's marginals. It is
    exact in the limit of large M.
    """
    config = SVDDConfig(steps=1, candidates=200, temperature=1.0)
    z_BL = driver.sample(
        world.prior, world.objective, config, grid=GRID, generator=generator(), batch=2000
    ).z_BL
    marginals_LK = world.prior.logits(
        torch.full((1, LENGTH), MASK),
        grid=GRID,
        mask_fraction=1.0,
        condition="",
        guidance_scale=0.0,
    )[0]
    product_S = torch.einsum("slk,lk->s", world.prior.one_hot_SLK, marginals_LK)
    world.posterior_S = (product_S + world.log_likelihood(world.prior.states_SL)).softmax(0)
    assert world.total_variation(z_BL) < 0.1


# -- SGDD -----------------------------------------------------------------------------------------


def test_metropolis_hastings_has_the_exact_stationary_distribution():
    world = ToyWorld(sigma=1.5)  # chains mix slowly where the measurement is sharp
    x_L, log_odds = world.prior.states_SL[37], -0.7
    chain = metropolis_hastings(
        x_L.repeat(6000, 1),
        world.prior.tokenizer,
        world.objective,
        GRID,
        log_odds,
        120,
        generator(),
    )
    distance_S = (world.prior.states_SL != x_L).sum(1)
    world.posterior_S = (
        world.log_likelihood(world.prior.states_SL) + log_odds * distance_S
    ).softmax(0)
    assert world.total_variation(chain.z_BL) < 0.07
    world.posterior_S = world.log_likelihood(world.prior.states_SL).softmax(0)
    assert world.total_variation(chain.z_BL) > 0.12  # the coupling matters


def test_without_a_temperature_only_improvements_are_accepted(world):
    world.objective.temperature = 0.0
    x_BL = world.prior.states_SL[::5]
    chain = metropolis_hastings(
        x_BL, world.prior.tokenizer, world.objective, GRID, 0.0, 60, generator()
    )
    before, after = (world.objective(world.decode(z))[0] for z in (x_BL, chain.z_BL))
    assert (after <= before).all()
    assert after.mean() < before.mean()


def test_denoising_one_token_at_a_time_draws_from_the_prior(world):
    config = SGDDConfig(denoise_steps=500)
    z_BL = denoise(problem(world), torch.full((8000, LENGTH), MASK), config)
    world.posterior_S = world.prior.p_S
    assert world.total_variation(z_BL) < 0.08
    kept = torch.tensor([[0, MASK, 3, MASK]]).repeat(50, 1)
    assert (denoise(problem(world), kept, config)[:, [0, 2]] == torch.tensor([0, 3])).all()


def test_the_coupling_tightens_with_the_noise_level():
    odds = [hamming_log_odds(level, 10.0, 256) for level in (1.0, 0.5, 0.1, 0.01)]
    assert odds == sorted(odds, reverse=True)
    # uniform over codes
    assert odds[0] == pytest.approx(torch.tensor(255.0).log().item(), rel=1e-4)
    assert odds[-1] < -2


# -- G2D2 -----------------------------------------------------------------------------------------


class Indifferent:
    """A differentiable objective that is constant."""

    noise_floor = temperature = 0.0

    def __call__(self, x_BCHW):
        loss_B = 0 * x_BCHW.flatten(1).sum(1)
        return loss_B, loss_B.detach()


def test_without_a_likelihood_g2d2_stays_at_the_prior(world):
    z_BL = torch.tensor([[MASK] * LENGTH, [1, MASK, 0, MASK]])
    logits = world.prior.logits(
        z_BL, grid=GRID, mask_fraction=0.5, condition="", guidance_scale=0.0
    )
    log_p = reconsidered(logits, z_BL, 0.5)
    config = G2D2Config(inner_steps=20, learning_rate=0.1, kl_weight=1.0)
    stayed = variational_fit(
        log_p, log_p, world.prior.tokenizer, Indifferent(), config, GRID, 0.0, generator()
    )
    torch.testing.assert_close(stayed.log_q_BLK.exp(), log_p.exp(), atol=1e-3, rtol=0)
    away = torch.zeros_like(log_p).log_softmax(-1)
    config = G2D2Config(inner_steps=300, learning_rate=0.1, kl_weight=1.0)
    drawn_back = variational_fit(
        away, log_p, world.prior.tokenizer, Indifferent(), config, GRID, 0.0, generator()
    )
    torch.testing.assert_close(drawn_back.log_q_BLK[0].exp(), log_p[0].exp(), atol=0.02, rtol=0)


def test_the_gradient_of_the_divergence():
    phi, log_p = (torch.randn(2, 3, 5, generator=generator(seed)) for seed in (0, 1))
    log_p = log_p.log_softmax(-1)
    phi.requires_grad_()
    exact = torch.nn.functional.kl_div(log_p, phi.log_softmax(-1), reduction="sum", log_target=True)
    value, gradient = divergence_with_gradient(phi.detach(), log_p)
    torch.testing.assert_close(value, exact.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(exact, phi)[0])


def test_decided_tokens_get_a_mixture_distribution(world):
    z_BL = torch.tensor([[2, MASK, MASK, MASK]])
    log_p = reconsidered(torch.zeros(1, LENGTH, CODES), z_BL, 0.4)
    torch.testing.assert_close(log_p[0, 0].exp(), torch.tensor([0.1, 0.1, 0.7, 0.1]))
    torch.testing.assert_close(log_p[0, 1:].exp(), torch.full((LENGTH - 1, CODES), 0.25))


def test_star_shaped_noising_can_undo_decisions(world):
    """A wrong token of an early step is replaced later; mask counts follow the schedule."""
    states = []
    config = G2D2Config(steps=6, inner_steps=20, learning_rate=1.0)
    driver.sample(
        world.prior,
        world.objective,
        config,
        grid=GRID,
        generator=generator(),
        batch=200,
        on_step=lambda info: states.append(info.state.z_BL),
    )
    changed = [((a != MASK) & (b != MASK) & (a != b)).any() for a, b in pairwise(states)]
    remasked = [((a != MASK) & (b == MASK)).any() for a, b in pairwise(states)]
    assert any(changed)
    assert any(remasked)
    assert all(((z == MASK).sum(1) == (z[0] == MASK).sum()).all() for z in states)


def test_guidance_lowers_the_misfit(world):
    config = G2D2Config(steps=6, inner_steps=30, learning_rate=1.0)
    guided = driver.sample(
        world.prior, world.objective, config, grid=GRID, generator=generator(), batch=300
    )
    unguided = driver.sample(
        world.prior, Indifferent(), config, grid=GRID, generator=generator(), batch=300
    )
    assert guided.misfit_B.mean() < 0.5 * world.objective(unguided.x_BCHW)[1].mean()


def test_incompatible_states_and_divergence_are_rejected(world):
    states = []
    draw(world, "svdd", on_step=lambda info: states.append(info.state))
    with pytest.raises(InvalidSpec, match="another sampler"):
        draw(world, "g2d2", resume=states[0])
    world.objective.y_BCHW = world.objective.y_BCHW * float("nan")
    with pytest.raises(SamplingDiverged, match="learning rate"):
        draw(world, "g2d2")


def test_decided_tokens_are_kept_however_strong_the_noise_of_the_order():
    generator = torch.Generator().manual_seed(0)
    logits_BLK = torch.randn(4, 64, 8, generator=generator)
    z_BL = torch.randint(0, 8, (4, 64), generator=generator)
    z_BL[:, ::2] = MASK
    decided = z_BL != MASK
    next_BL, _, _ = unmask(logits_BLK, z_BL, 0, 8, 1000.0, generator)
    assert torch.equal(next_BL[decided], z_BL[decided])
    assert (next_BL[~decided] == MASK).any()
