"""The paper's two theorems, checked on a problem whose distributions can be enumerated."""

import pytest
import torch

from aps_core.theory.bounds import (
    aps_bound,
    ddps_bound,
    denoiser,
    expected_log_likelihood,
    nelbo,
    reveal_probability,
    surrogate,
    tilted_kernel,
)
from aps_core.theory.toy import CODES, GRID, LENGTH, ToyWorld
from aps_core.types import MASK

STEPS = 3


@pytest.fixture(scope="module")
def world():
    return ToyWorld(sigma=0.8)


@pytest.fixture(scope="module")
def theta(world):
    return denoiser(world.prior, GRID)


@pytest.fixture(scope="module")
def phi(theta):
    """A suboptimal denoiser adapted to a measurement: the prior's prediction, perturbed."""

    def predict(z_BL, share):
        pull_K = torch.tensor([0.9, -0.4, 0.1, -0.2])
        return (0.7 * theta(z_BL, share) + pull_K).log_softmax(-1)

    return predict


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def enumerated_chain(world, predict, log_likelihood=None, steps=STEPS):
    """Exact distribution (S,) of the tilted chain's result.

    It is the product of the transition matrices over all partially masked pictures.
    """
    partial_PL = torch.cartesian_prod(*[torch.arange(MASK, CODES)] * LENGTH)
    one_hot_SLK = world.prior.one_hot_SLK
    state_P = torch.zeros(len(partial_PL))
    state_P[0] = 1.0
    for step in range(steps):
        reveal, log_p_PLK = reveal_probability(step, steps), predict(partial_PL, 0.0)
        masked_PL = partial_PL == MASK
        p_PLK = torch.where(
            masked_PL[..., None],
            log_p_PLK.exp(),
            torch.nn.functional.one_hot(partial_PL.clamp(min=0), CODES).float(),
        )
        outcome_PLV = torch.zeros(len(partial_PL), LENGTH, CODES + 1)
        if log_likelihood is not None:
            value_S = log_likelihood(world.prior.states_SL)
            chosen_PSL = torch.einsum("plk,slk->psl", p_PLK, one_hot_SLK)
            for token in range(LENGTH):
                others_PS = chosen_PSL[
                    :, :, [other for other in range(LENGTH) if other != token]
                ].prod(-1)
                outcome_PLV[:, token, :-1] = others_PS @ (value_S[:, None] * one_hot_SLK[:, token])
                outcome_PLV[:, token, -1] = chosen_PSL.prod(-1) @ value_S
        kernel_PLV = tilted_kernel(log_p_PLK, outcome_PLV, reveal)[0].exp()
        stays_PLV = torch.nn.functional.one_hot(partial_PL.clamp(min=0), CODES + 1).float()
        # "masked" is -1, the first of partial_PL's digits
        kernel_PLV = torch.where(masked_PL[..., None], kernel_PLV, stays_PLV).roll(1, -1)
        transition_PP = torch.ones(len(partial_PL), len(partial_PL))
        for token in range(LENGTH):
            transition_PP *= kernel_PLV[:, token][:, partial_PL[:, token] + 1]
        state_P = state_P @ transition_PP
    complete_P = (partial_PL != MASK).all(1)
    assert state_P[~complete_P].sum() < 1e-6
    return state_P[complete_P]


def sequences(law_S, count=6):
    """Indices of results, from the most likely to one of the least likely."""
    order = law_S.argsort(descending=True)
    return order[torch.linspace(0, len(order) - 1, count).long()].tolist()


def test_the_nelbo_bounds_ancestral_sampling(world, theta):
    law_S = enumerated_chain(world, theta)
    assert law_S.sum().item() == pytest.approx(1.0, abs=1e-5)
    for index in sequences(law_S):
        bound = nelbo(theta, world.prior.states_SL[index], STEPS, 2000, generator())
        assert bound.total > -law_S[index].log().item() - 3 * bound.standard_error


def test_the_nelbo_of_an_exact_prior_is_tight_when_tokens_are_decided_one_at_a_time(world, theta):
    """The product of exact conditionals is the joint probability in any order."""
    x_L = world.truth_L
    exact = -world.prior.p_S[world.index(x_L[None])].log().item()
    gaps = [nelbo(theta, x_L, steps, 600, generator()).total - exact for steps in (1, 4, 256)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] == pytest.approx(0, abs=0.15)
    every = [nelbo(theta, x, 1, 1, generator()).total for x in world.prior.states_SL[::17]]
    one_step_S = enumerated_chain(world, theta, steps=1)
    # one step leaves nothing to bound
    assert torch.tensor(every).allclose(-one_step_S[::17].log(), atol=1e-4)


@pytest.mark.parametrize("which", ["theta", "phi"])
def test_theorem_1_bounds_the_tilted_chain(world, which, request):
    predict = request.getfixturevalue(which)
    law_S = enumerated_chain(world, predict, world.log_likelihood)
    assert law_S.sum().item() == pytest.approx(1.0, abs=1e-4)
    for index in sequences(law_S):
        bound = ddps_bound(
            predict, world.log_likelihood, world.prior.states_SL[index], STEPS, 600, 8, generator()
        )
        assert bound.total > -law_S[index].log().item() - 3 * bound.standard_error
        assert bound.total == pytest.approx(
            bound.cross_entropy + bound.tilt + bound.partition, rel=1e-4
        )


def test_the_bound_is_tight_in_one_step(world, phi):
    """With one reverse step, only the error of the expected likelihoods remains."""
    law_S = enumerated_chain(world, phi, world.log_likelihood, steps=1)
    for index in sequences(law_S, 4):
        bound = ddps_bound(
            phi, world.log_likelihood, world.prior.states_SL[index], 1, 40, 400, generator()
        )
        assert bound.total == pytest.approx(-law_S[index].log().item(), abs=0.1)


def test_theorem_2_is_theorem_1_rewritten_around_the_prior(world, theta, phi):
    for index in (0, 100, 255):
        x_L = world.prior.states_SL[index]
        first = ddps_bound(phi, world.log_likelihood, x_L, STEPS, 100, 4, generator())
        second = aps_bound(theta, phi, world.log_likelihood, x_L, STEPS, 100, 4, generator())
        assert second.total == pytest.approx(first.total, rel=1e-4)
        assert second.cross_entropy == pytest.approx(
            nelbo(theta, x_L, STEPS, 4000, generator(1)).total, abs=0.6
        )
        assert second.adaptation != 0


def test_theorem_2_bounds_the_posterior_entropy(world, theta, phi):
    """E[L_APS] over the exact posterior is at least the entropy of the posterior."""
    entropy = -(world.posterior_S * world.posterior_S.log()).sum().item()
    x_BL = world.prior.states_SL[
        torch.multinomial(world.posterior_S, 60, replacement=True, generator=generator())
    ]
    for predict in (theta, phi):
        totals = [
            aps_bound(theta, predict, world.log_likelihood, x_L, STEPS, 30, 8, generator()).total
            for x_L in x_BL
        ]
        assert sum(totals) / len(totals) > entropy


def test_without_a_measurement_both_bounds_are_the_nelbo(world, theta):
    def ignorant(z_BL):
        return torch.full((len(z_BL),), -7.0)

    x_L = world.truth_L
    for bound in (
        ddps_bound(theta, ignorant, x_L, STEPS, 300, 2, generator()),
        aps_bound(theta, theta, ignorant, x_L, STEPS, 300, 2, generator()),
    ):
        assert bound.tilt + bound.partition == pytest.approx(0, abs=1e-3)
        assert bound.adaptation == 0
        assert bound.total == pytest.approx(bound.cross_entropy, abs=1e-3)
        assert bound.cross_entropy == pytest.approx(
            nelbo(theta, x_L, STEPS, 3000, generator(1)).total, abs=0.4
        )


def test_expected_likelihoods_are_unbiased(world, theta):
    z_BL = torch.tensor([[MASK, 2, MASK, MASK]])
    log_p = theta(z_BL, 0.75)
    estimate = expected_log_likelihood(log_p, z_BL, world.log_likelihood, 20_000, generator())
    decided = torch.nn.functional.one_hot(z_BL.clamp(min=0), CODES).float()
    p_LK = torch.where((z_BL == MASK)[..., None], log_p.exp(), decided)[0]
    chosen_SL = torch.einsum("lk,slk->sl", p_LK, world.prior.one_hot_SLK)
    value_S = world.log_likelihood(world.prior.states_SL)
    assert estimate[0, 0, -1].item() == pytest.approx((chosen_SL.prod(1) @ value_S).item(), abs=0.2)
    for code in range(CODES):
        exact = (chosen_SL[:, 1:].prod(1) * world.prior.one_hot_SLK[:, 0, code]) @ value_S
        assert estimate[0, 0, code].item() == pytest.approx(exact.item(), abs=0.2)


def exact_gradient(world, phi_LK, z_L):
    """Gradient of E[-log q(y | x)] over x drawn from softmax(phi), by enumeration."""
    phi_LK = phi_LK.clone().requires_grad_()
    decided = torch.nn.functional.one_hot(z_L.clamp(min=0), CODES).float()
    p_LK = torch.where((z_L == MASK)[:, None], phi_LK.softmax(-1), decided)
    law_S = torch.einsum("lk,slk->sl", p_LK, world.prior.one_hot_SLK).prod(1)
    expected = -(law_S @ world.log_likelihood(world.prior.states_SL))
    return torch.autograd.grad(expected, phi_LK)[0], expected.item()


def test_the_surrogate_gradient_is_a_descent_direction():
    """The surrogate gradient is biased, but has a positive inner product with the exact gradient of
    the intractable measurement term at many logits, states and problems.
    """
    cosines, fell = [], []
    for seed in range(8):
        world = ToyWorld(seed)
        for trial in range(12):
            random = generator(100 * seed + trial)
            z_BL = torch.where(torch.rand(1, LENGTH, generator=random) < 0.7, MASK, world.truth_L)
            if not (z_BL == MASK).any():
                continue
            phi_BLK = torch.randn(1, LENGTH, CODES, generator=random).requires_grad_()
            loss_B = surrogate(
                phi_BLK,
                torch.zeros_like(phi_BLK),
                z_BL,
                world.prior.tokenizer,
                world.objective,
                GRID,
                0.0,
            )
            ours = torch.autograd.grad(loss_B.sum(), phi_BLK)[0][0]
            exact, before = exact_gradient(world, phi_BLK.detach()[0], z_BL[0])
            cosines.append(
                torch.nn.functional.cosine_similarity(ours.flatten(), exact.flatten(), dim=0).item()
            )
            step = 0.05 * ours / ours.norm()
            fell.append(exact_gradient(world, phi_BLK.detach()[0] - step, z_BL[0])[1] < before)
    assert sum(cosines) / len(cosines) > 0.5
    assert sum(fell) / len(fell) > 0.8


def test_without_a_measurement_the_surrogate_follows_the_prior(world):
    theta_BLK = torch.randn(1, LENGTH, CODES, generator=generator())
    phi_BLK = torch.zeros(1, LENGTH, CODES).requires_grad_()
    z_BL = torch.full((1, LENGTH), MASK)
    loss_B = surrogate(phi_BLK, theta_BLK, z_BL, world.prior.tokenizer, Silent(), GRID, 0.4)
    gradient = torch.autograd.grad(loss_B.sum(), phi_BLK)[0]
    assert (
        gradient.argmin(-1) == theta_BLK.argmax(-1)
    ).all()  # descent raises the most likely code of the prior most


class Silent:
    """An objective without measurement."""

    noise_floor, temperature = 0.0, 1.0

    def __call__(self, x_BCHW):
        loss_B = 0 * x_BCHW.flatten(1).sum(1)
        return loss_B, loss_B.detach()
