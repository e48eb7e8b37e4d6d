"""Algorithm 1: invariants, comparison with an independent implementation, and options."""

import time
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from aps_core.aps import anchored_remasking, sample_aps
from aps_core.errors import SamplingCancelled, SamplingDiverged
from aps_core.samplers.aps import APSConfig
from aps_core.sampling.anchors import token_score
from aps_core.sampling.inner_watch import LOOK_SECONDS, InnerWatch
from aps_core.sampling.schedule import mask_fraction, masked_counts
from aps_core.types import MASK
from tests.core.toys import PullingPrior

GRID = (3, 4)
L, K = 12, 16


class KnownTokens:
    """L1 distance to the picture decoded from known tokens."""

    noise_floor = 0.0

    def __init__(self, prior, seed=3):
        self.truth = torch.randint(K, (1, L), generator=torch.Generator().manual_seed(seed))
        self.y = prior.tokenizer.decode(prior.tokenizer.codebook_KD[self.truth], GRID)

    def __call__(self, x):
        loss = (x - self.y).abs().flatten(1).sum(1)
        return loss, loss.detach() / self.y.numel()


@pytest.fixture
def prior():
    return PullingPrior(L)


@pytest.fixture
def objective(prior):
    return KnownTokens(prior)


CONFIG = APSConfig(steps=5, inner_steps=12)


def sample(prior, objective, config=CONFIG, batch=1, seed=0, **kwargs):
    return sample_aps(
        prior,
        objective,
        config,
        grid=GRID,
        generator=torch.Generator().manual_seed(seed),
        batch=batch,
        **kwargs,
    )


def algorithm_1(prior, objective, steps, inner_steps, rate):
    """The paper's pseudo-code, token by token, on the full table of logits with an unfused Adam."""
    tokenizer, book = prior.tokenizer, prior.tokenizer.codebook_KD
    z = [MASK] * L
    for left in masked_counts(L, steps):
        phi = (
            prior.logits(
                torch.tensor([z]), grid=GRID, mask_fraction=0, condition="", guidance_scale=0
            )[0]
            .clone()
            .requires_grad_()
        )
        adam = torch.optim.Adam([phi], lr=rate, foreach=False, fused=False)
        for _ in range(inner_steps):
            x_bar = phi.softmax(-1) @ book
            x = torch.where(x_bar > 0, 1.0, -1.0)
            x_tilde = x_bar + (x - x_bar).detach()
            clamped = torch.stack(
                [x_tilde[i] if code == MASK else book[code] for i, code in enumerate(z)]
            )
            loss = (tokenizer.decode(clamped[None], GRID) - objective.y).abs().sum()
            adam.zero_grad()
            loss.backward()
            adam.step()
        p = phi.detach().double().softmax(-1)
        codes = [
            (book == torch.where(row @ book.double() > 0, 1.0, -1.0)).all(1).nonzero().item()
            for row in p
        ]
        kappa = {i: p[i, codes[i]].item() for i in range(L) if z[i] == MASK}
        for i in sorted(kappa, key=lambda i: -kappa[i])[: len(kappa) - left]:
            z[i] = codes[i]
    return z


def test_equals_the_papers_pseudo_code(prior, objective):
    ours = sample(prior, objective, APSConfig(steps=5, inner_steps=6, learning_rate=0.3))
    assert ours.z_BL[0].tolist() == algorithm_1(prior, objective, steps=5, inner_steps=6, rate=0.3)


def test_schedule_and_decided_tokens(prior, objective):
    states = []
    final = sample(prior, objective, on_step=lambda info: states.append(info) or None, batch=2)
    assert [(s.state.z_BL == MASK).sum(1).tolist() for s in states] == [
        [n, n] for n in masked_counts(L, CONFIG.steps)
    ]
    previous = torch.full((2, L), MASK)
    for info in states:
        decided = previous != MASK
        assert torch.equal(info.state.z_BL[decided], previous[decided])
        assert torch.equal(info.anchors_BL, ~decided & (info.state.z_BL != MASK))
        previous = info.state.z_BL
    assert torch.equal(final.z_BL, previous)
    assert (final.z_BL != MASK).all()


def test_inner_loop_lowers_the_loss_and_the_result_fits(prior, objective):
    curves = []
    guided = sample(prior, objective, on_step=lambda info: curves.append(info.loss_curve))
    assert all(curve[-1] < curve[0] for curve in curves[:2])
    unguided = sample(prior, objective, APSConfig(steps=5, inner_steps=0))
    assert guided.misfit_B.item() < 0.6 * unguided.misfit_B.item()


def test_without_inner_steps_the_result_is_that_of_the_prior(prior):
    first, second = (
        sample(prior, KnownTokens(prior, seed), APSConfig(steps=3, inner_steps=0))
        for seed in (3, 4)
    )
    assert torch.equal(first.z_BL, second.z_BL)


@pytest.mark.parametrize("update", ["cosine_topk", "bernoulli"])
def test_resuming_after_any_step_gives_the_same_tokens(prior, objective, update):
    config = APSConfig(steps=5, inner_steps=5, state_update=update, temperature=1.0)
    states = []
    whole = sample(
        prior, objective, config, batch=2, on_step=lambda info: states.append(info.state)
    )
    for state in states[:-1]:
        frozen = replace(
            state, z_BL=state.z_BL.clone(), generator_state=state.generator_state.clone()
        )
        assert torch.equal(
            sample(prior, objective, config, batch=2, seed=99, resume=frozen).z_BL, whole.z_BL
        )


def test_seeds(prior, objective):
    config = APSConfig(steps=5, inner_steps=3, remasking="random")
    assert torch.equal(
        sample(prior, objective, config, seed=1).x_BCHW,
        sample(prior, objective, config, seed=1).x_BCHW,
    )
    assert not torch.equal(
        sample(prior, objective, config, seed=1).z_BL, sample(prior, objective, config, seed=2).z_BL
    )


def test_several_samples_differ_and_a_single_one_uses_no_randomness(prior, objective):
    several = sample(prior, objective, APSConfig(steps=5, inner_steps=3), batch=4)
    assert len({tuple(row.tolist()) for row in several.z_BL}) > 1
    config = APSConfig(steps=5, inner_steps=3)
    assert torch.equal(
        sample(prior, objective, config, seed=1).z_BL, sample(prior, objective, config, seed=2).z_BL
    )


def first_anchor(prior, phi, trusted, **switches):
    z = torch.full((1, L), MASK)
    config = APSConfig(**switches)
    z_next, _ = anchored_remasking(
        phi, trusted, z, prior.tokenizer, config, L - 1, 0.1, torch.Generator().manual_seed(0)
    )
    return (z_next[0] != MASK).nonzero().item()


def test_remasking_ranks_by_the_selected_distribution(prior):
    """The posterior is confident in token 2, the prior in token 7. APS-II keeps the former, APS-I
    the latter.
    """
    phi, trusted = torch.zeros(L, K), torch.zeros(L, K)
    phi[:, 5], trusted[:, 5] = 3.0, 3.0
    phi[2, 5], trusted[7, 5] = 9.0, 9.0
    assert first_anchor(prior, phi, trusted, remasking="posterior") == 2
    assert first_anchor(prior, phi, trusted, remasking="prior") == 7


def test_confidence_is_monotonic_in_probability_and_does_not_saturate():
    generator = torch.Generator().manual_seed(0)
    logits, x = (
        torch.randn(50, K, generator=generator) * 3,
        torch.randint(K, (50,), generator=generator),
    )
    probability = logits.softmax(-1).gather(-1, x[:, None])[:, 0]
    assert torch.equal(token_score(logits, x, "confidence").argsort(), probability.argsort())
    sure = torch.zeros(2, K)
    sure[0, 0], sure[1, 0] = 40.0, 60.0
    assert sure.softmax(-1)[0, 0] == sure.softmax(-1)[1, 0]  # the probability saturates
    score = token_score(sure, torch.zeros(2, dtype=torch.long), "confidence")
    assert score[1] > score[0]


def test_other_scores_match_their_definitions():
    logits = torch.randn(9, K, generator=torch.Generator().manual_seed(0))
    p = logits.softmax(-1)
    best = p.argmax(-1)
    torch.testing.assert_close(token_score(logits, best, "entropy"), -torch.special.entr(p).sum(-1))
    top = p.topk(2).values
    torch.testing.assert_close(token_score(logits, best, "margin"), (top[:, 0] / top[:, 1]).log())


def test_anchor_noise_is_relative_to_the_scores_and_keeps_their_tendency():
    prior, runs = PullingPrior(L), 600
    tokens = torch.full((runs, L), MASK)
    phi = torch.zeros(L, K)
    phi[:, 5] = torch.linspace(1.0, 2.0, L)  # the last token has the highest score

    def first(scale, temperature):
        config = APSConfig(anchor_temperature=temperature)
        z, kappa = anchored_remasking(
            (phi * scale).repeat(runs, 1),
            None,
            tokens,
            prior.tokenizer,
            config,
            L - 1,
            0.1,
            torch.Generator().manual_seed(0),
        )
        assert torch.equal(
            kappa,
            token_score(
                (phi * scale).repeat(runs, 1), z.new_full((runs * L,), 5), "confidence"
            ).view(runs, L),
        ), "told without the noise"
        return (z != MASK).int().argmax(1)

    assert (first(1, 0.0) == L - 1).all()
    share = torch.bincount(first(1, 1.0), minlength=L) / runs
    assert 1.5 / L < share[-1] < 0.9
    assert share[-1] > 3 * share[0]
    # nearly a random order
    assert torch.bincount(first(1, 10.0), minlength=L).float().std() < 0.3 * runs / L
    agreement = (first(1, 1.0) == first(20, 1.0)).float().mean()
    # what counts is the noise against the scores' spread, not the logits' scale
    assert agreement > 0.8


def test_bernoulli_keeps_a_share_of_the_anchors():
    prior = PullingPrior(L)
    z, phi = (
        torch.full((400, L), MASK),
        torch.randn(400 * L, K, generator=torch.Generator().manual_seed(0)),
    )
    config, keep = APSConfig(state_update="bernoulli"), 1 - mask_fraction(0.5)
    z_next, _ = anchored_remasking(
        phi, phi, z, prior.tokenizer, config, L // 2, keep, torch.Generator().manual_seed(0)
    )
    share = (z_next != MASK).float().mean().item() / 0.5
    assert abs(share - keep) < 0.03


def test_adaptive_stops_at_the_noise_floor_and_on_a_plateau(prior, objective):
    lengths = []
    objective.noise_floor = 10.0
    sample(
        prior,
        objective,
        APSConfig(steps=2, inner_steps=50, inner="adaptive"),
        on_step=lambda info: lengths.append(len(info.loss_curve)),
    )
    assert lengths == [10, 10]
    objective.noise_floor, lengths[:] = 0.0, []
    sample(
        prior,
        objective,
        APSConfig(steps=1, inner_steps=400, inner="adaptive"),
        on_step=lambda info: lengths.append(len(info.loss_curve)),
    )
    assert 10 <= lengths[0] < 400


def test_prior_term_moves_the_result_towards_the_prior(prior, objective):
    def likelihood(weight):
        z = sample(
            prior,
            objective,
            APSConfig(steps=1, inner_steps=60, learning_rate=0.3, prior_weight=weight),
        ).z_BL
        return prior.base.log_softmax(-1).gather(-1, z[0][:, None]).mean()

    assert likelihood(5.0) > likelihood(0.0) + 0.1


def test_entropy_term_sharpens(prior, objective):
    scores = {}
    for weight in (0.0, 1.0):
        config = APSConfig(
            steps=1,
            inner_steps=30,
            learning_rate=0.1,
            entropy_weight=weight,
            anchor_score="entropy",
        )
        sample(
            prior,
            objective,
            config,
            on_step=lambda info, w=weight: scores.update({w: info.confidence_BL.mean().item()}),
        )
    assert scores[1.0] > scores[0.0]  # negative entropy is larger


def test_the_inner_hook_runs_every_tenth_iteration_and_can_cancel(prior, objective):
    seen = []
    config = APSConfig(steps=2, inner_steps=35)
    sample(prior, objective, config, on_inner=seen.append)
    first = [info.iteration for info in seen if info.step == 1]
    assert first[0] == 1
    assert len(first) >= 3
    assert all(0 < later - sooner <= 10 for sooner, later in pairwise(first))
    assert {(info.total, info.inner_steps) for info in seen} == {(2, 35)}
    assert seen[0].loss > [info.loss for info in seen if info.step == 1][-1]

    finished = []
    with pytest.raises(SamplingCancelled, match="reverse step 2 of 2, after inner iteration 1 "):
        sample(
            prior,
            objective,
            config,
            on_step=lambda info: finished.append(info.state.step),
            on_inner=lambda info: info.step == 1,
        )
    assert finished == [1]


def test_slow_iterations_are_reported_one_by_one():
    seen = []
    watch = InnerWatch(seen.append, step=1, total=1)
    for iteration in range(1, 4):
        time.sleep(1.1 * LOOK_SECONDS)
        watch(iteration, 3, torch.tensor(0.0))
    assert [info.iteration for info in seen] == [1, 2, 3]


def test_an_optimiser_beyond_its_budget_is_still_reported():
    seen = []
    watch = InnerWatch(seen.append, step=1, total=1)
    for iteration in range(1, 61):
        watch(min(iteration, 25), 25, torch.tensor(0.0))
    assert len(seen) >= 6


def test_cancelling_and_diverging(prior, objective):
    with pytest.raises(SamplingCancelled, match="step 2 of 5"):
        sample(prior, objective, on_step=lambda info: info.state.step < 2)
    objective.y = objective.y * float("nan")
    with pytest.raises(SamplingDiverged, match="learning rate"):
        sample(prior, objective)
