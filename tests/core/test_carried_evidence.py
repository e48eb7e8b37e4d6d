"""The sampler that carries evidence over the reverse steps, and its total-variation estimates."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F

from aps_core.errors import SamplingCancelled
from aps_core.imaging.total_variation import (
    curvature,
    total_variation,
    total_variation_estimate,
)
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import Bound
from aps_core.samplers import SamplerSpec
from aps_core.samplers.carried_evidence import CarriedEvidence
from aps_core.sampling import driver
from aps_core.theory.toy import GRID, ToyWorld
from aps_core.types import InnerInfo, Prior, Sample, StepInfo


def drawn(world: ToyWorld, sampler: SamplerSpec, batch: int = 400, **options: Any) -> Sample:
    generator = torch.Generator().manual_seed(0)
    return driver.sample(
        cast(Prior, world.prior),
        world.objective,
        sampler,
        grid=GRID,
        generator=generator,
        batch=batch,
        **options,
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_samples_are_nearer_to_the_exact_posterior_than_the_priors(seed: int) -> None:
    world = ToyWorld(seed)
    sampler = CarriedEvidence(
        steps=4, inner_steps=20, learning_rate=0.1, start=0.0, prior_weight=1.0
    )
    prior = SamplerSpec.named("prior_only").model_validate({"steps": 4})
    ours, alone = (world.total_variation(drawn(world, each).z_BL) for each in (sampler, prior))
    assert ours < alone - 0.1


def test_the_prior_s_power_reaches_from_no_prior_to_a_sharper_one() -> None:
    """0 is a prior that knows nothing; 1 is the prior; with more it counts more."""
    world, blank = ToyWorld(3), ToyWorld(3)
    table = cast(Any, blank.prior)
    blank.prior = cast(Any, SimpleNamespace(tokenizer=table.tokenizer, logits=_equal(table.logits)))
    common = {"steps": 4, "inner_steps": 3, "temperature": 0.0}

    def restored(power: float, world: ToyWorld = world) -> torch.Tensor:
        sampler = CarriedEvidence(prior_power=power, **common)
        return drawn(world, sampler, 8).x_BCHW

    torch.testing.assert_close(restored(0.0), restored(1.0, blank))
    assert not torch.equal(restored(0.0), restored(1.0))
    assert not torch.equal(restored(0.25), restored(1.0))


def _equal(logits: Any) -> Any:
    return lambda *arguments, **options: torch.zeros_like(logits(*arguments, **options))


def test_a_resumed_run_gives_the_same_tokens() -> None:
    world, states = ToyWorld(3), []
    sampler = CarriedEvidence(steps=4, inner_steps=3)

    def keep(info: StepInfo) -> None:
        states.append(info.state)

    whole = drawn(world, sampler, 8, on_step=keep)
    assert set(states[1].carried) == {"u", "step", "exp_avg", "exp_avg_sq"}
    again = drawn(world, sampler, 8, resume=states[1])
    torch.testing.assert_close(again.z_BL, whole.z_BL)
    torch.testing.assert_close(again.x_BCHW, whole.x_BCHW)


@pytest.mark.parametrize("during", ["start", "correction"])
def test_start_and_correction_can_be_canceled(during: str) -> None:
    """Both take many steps without the decoder, so they ask as the inner iterations do."""
    world, seen = ToyWorld(3), list[InnerInfo]()
    sampler = CarriedEvidence(steps=1, inner_steps=1, correction=2.0)
    stage = {"start": 0, "correction": 1}[during]  # of one inner iteration

    def ask(info: InnerInfo) -> bool:
        seen.append(info)
        asked = [each.iteration for each in seen].count(stage)
        return asked < 3

    with pytest.raises(SamplingCancelled):
        drawn(world, sampler, 2, on_inner=ask)
    assert seen[-1].iteration == stage


def measured(x_BCHW: torch.Tensor, sigma: float) -> MeasurementObjective:
    noise = sigma * torch.randn(x_BCHW.shape, generator=torch.Generator().manual_seed(1))
    return MeasurementObjective(Bound(lambda x: x), x_BCHW + noise, sigma)


def test_total_variation_counts_every_edge_once() -> None:
    x = torch.zeros(1, 3, 9, 9)
    x[..., 4:] = 0.5
    # in each of 9 columns, all three colours change by 0.5 at one edge
    assert float(total_variation(x)) == pytest.approx(9 * 0.5 * 3**0.5, abs=0.1)


def test_the_estimate_removes_noise_and_keeps_edges() -> None:
    truth = torch.zeros(1, 3, 24, 24)
    truth[..., 6:18, 6:18] = 0.8
    objective = measured(truth, 0.1)
    found = total_variation_estimate(objective, torch.zeros_like(truth), weight=20)
    noisy = (objective.y_BCHW - truth).square().mean()
    assert (found - truth).square().mean() < noisy / 10
    assert float((found[..., 12, 12] - found[..., 2, 2]).mean()) == pytest.approx(0.8, abs=0.08)


def test_the_correction_agrees_with_the_measurement_and_changes_nothing_it_cannot_see() -> None:
    truth = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)) - 0.5
    weight = torch.zeros(1, 1, 16, 16)
    weight[..., :8] = 1
    objective = MeasurementObjective(Bound(lambda x: x, weight=weight), truth * weight, sigma=0.01)
    decoded = truth + 0.2 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(2))
    found = total_variation_estimate(
        objective, decoded, weight=0.0, correction_weight=2.0, learning_rate=0.03
    )
    seen, unseen = (found - truth)[..., :8].abs().mean(), (found - decoded)[..., 10:].std()
    assert seen < 0.02
    assert unseen < 0.05


def test_curvature_ignores_slopes_and_counts_bends() -> None:
    ramp = torch.linspace(-1, 1, 12).expand(1, 3, 12, 12)
    inside = ramp[..., 1:-1, 1:-1]  # at the border, the edge pixel is repeated
    bends = float(curvature(ramp) - curvature(torch.zeros_like(ramp)))
    at_borders = 2 * 12 * (2 / 11) * 3**0.5
    assert bends == pytest.approx(at_borders, rel=0.02)
    roof = torch.minimum(inside, -inside)
    assert float(curvature(roof)) > float(curvature(inside)) + 1


def test_curvature_continues_a_slope_through_a_gap() -> None:
    truth = torch.linspace(-0.8, 0.8, 24).expand(1, 3, 24, 24).contiguous()
    known = torch.ones(1, 1, 24, 24)
    known[..., 8:16] = 0
    objective = MeasurementObjective(Bound(lambda x: x * known, weight=known), truth, 0.02)
    assert objective.coverage(truth) == "gaps"

    def error(weight: float) -> float:
        start = truth * known
        estimate = total_variation_estimate(objective, start, weight=4.0, curvature_weight=weight)
        return float((estimate - truth)[..., 9:15].abs().mean())

    assert error(2.0) < error(0.0) / 3


def test_known_pixels_beside_gaps_are_the_measured_ones_without_their_noise() -> None:
    """Whatever the tokenizer made of them; those in the gap stay as they were."""
    truth = torch.linspace(-0.8, 0.8, 32).expand(1, 3, 32, 32).contiguous()
    mask = torch.ones(1, 1, 32, 32)
    mask[..., 10:22, 10:22] = 0
    noise = 0.1 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
    operator = Bound(lambda x: x * mask, weight=mask)
    objective = MeasurementObjective(operator, (truth + noise) * mask, 0.1)
    problem = cast(Any, SimpleNamespace(objective=objective, watch_beside=lambda *_: None))
    blocks = F.interpolate(F.avg_pool2d(truth, 4), scale_factor=4.0)
    found = CarriedEvidence(correction=200.0).finish(problem, blocks)
    outside = mask.expand_as(truth) > 0
    assert (blocks - truth)[outside].square().mean().sqrt() > 0.025
    assert (found - truth)[outside].square().mean().sqrt() < 0.025
    assert (found - blocks)[..., 13:19, 13:19].abs().max() < 0.06


def test_coverage_tells_single_pixels_from_mixtures() -> None:
    x = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    objectives = {
        "pixels": MeasurementObjective(Bound(lambda x: x).cropped(7, 6), x[..., :7, :6], 0.1),
        "mixtures": MeasurementObjective(Bound(lambda x: x.roll(1, 3)), x, 0.1),
        "gaps": MeasurementObjective(Bound(lambda x: 2 * x, clips=True), x, 0.1),
    }
    assert {name: each.coverage(x) for name, each in objectives.items()} == {
        n: n for n in objectives
    }


def test_pixels_are_those_that_were_measured_each_by_itself() -> None:
    """On the scale of pictures; and none, if values are mixtures, of colours as well."""
    x = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
    stretched = MeasurementObjective(Bound(lambda x: 4 * x, clips=True), 4 * x, 0.1).pixels(x)
    assert stretched is not None
    torch.testing.assert_close(stretched.y_BCHW, x)
    assert stretched.sigma == pytest.approx(0.025)
    assert torch.equal(stretched.known_BCHW, (4 * x).abs() < 0.7)
    assert not stretched.missing
    mask = torch.ones(1, 1, 8, 8)
    mask[..., 2] = 0
    gaps = MeasurementObjective(Bound(lambda x: x * mask, weight=mask), x * mask, 0.1).pixels(x)
    assert gaps is not None
    assert gaps.missing
    assert torch.equal(gaps.known_BCHW, mask.expand_as(x) > 0)
    for mixed in (lambda x: x.roll(1, 3), lambda x: x.flip(1), lambda x: x[..., ::2], lambda x: -x):
        assert MeasurementObjective(Bound(mixed), mixed(x), 0.1).pixels(x) is None


def test_little_noise_is_removed_by_as_strong_a_threshold_as_much_noise() -> None:
    """With a constant weight of the total variation, little noise would remain."""
    truth = torch.zeros(1, 3, 24, 24)
    truth[..., 6:18, 6:18] = 0.8
    objective = measured(truth, 0.02)
    problem = cast(Any, SimpleNamespace(objective=objective, watch_beside=lambda *_: None))
    noisy = objective.y_BCHW

    def error(denoising: float | None) -> float:
        sampler = CarriedEvidence(correction=2.0, smoothness=4.0, denoising=denoising)
        return float((sampler.finish(problem, noisy) - truth).square().mean().sqrt())

    assert error(0.8) < error(None) / 1.5 < 0.02
    assert error(0.08) == pytest.approx(error(None), rel=1e-3)  # 0.08 / 0.02 = 4
