"""Half-quadratic splitting: what the prior sees, the fits, samples, and runs that are resumed."""

from itertools import pairwise
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.errors import InvalidSpec, SamplingCancelled
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators.base import Bound
from aps_core.samplers.half_quadratic import HalfQuadratic
from aps_core.sampling import driver
from aps_core.sampling.views import view
from aps_core.tasks.restore import RestoreSpec
from aps_core.tokenizers.pixels import PixelTokenizer
from aps_core.types import Sample, StepInfo

GRID = (8, 8)
SIGMA = 0.05
EVERY_THIRD_11HW = (torch.arange(64).view(1, 1, *GRID) % 3 == 0).float()


class Smoother:
    """A prior that takes means of neighbours, and remembers what it saw; its answers depend on how
    a picture lies.
    """

    def __init__(self) -> None:
        self.tokenizer = PixelTokenizer()
        self.seen: list[tuple[Tensor, float]] = []

    def logits(self, z_BL: Tensor, **_: Any) -> Tensor:
        raise AssertionError("no tokens are asked for")

    def without_noise(self, noisy_BCHW: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        self.seen.append((noisy_BCHW, sigma))
        kernel = torch.tensor([[0.0, 1, 0], [1, 4, 2], [0, 2, 0]]).expand(3, 1, 3, 3) / 10
        padded_BCHW = F.pad(noisy_BCHW, (1, 1, 1, 1), mode="replicate")
        mean_BCHW = F.conv2d(padded_BCHW, kernel, groups=3)
        return mean_BCHW, torch.full_like(mean_BCHW[:, 0], sigma / 2)


def picture() -> Tensor:
    smooth = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(4)) * 2 - 1
    return F.interpolate(smooth, GRID, mode="bilinear")


def halved(x_BCHW: Tensor) -> Tensor:
    return F.avg_pool2d(x_BCHW, 2)


def missing(weight_11HW: Tensor) -> Bound:
    return Bound(lambda x_BCHW: x_BCHW * weight_11HW, weight=weight_11HW)


def measured(operator: Bound) -> MeasurementObjective:
    y_BCHW = operator(picture())
    noise = torch.randn(y_BCHW.shape, generator=torch.Generator().manual_seed(5))
    return MeasurementObjective(operator, (y_BCHW + SIGMA * noise)[0], SIGMA, "l2")


def restored(
    operator: Bound, batch: int = 1, steps: int = 4, **options: Any
) -> tuple[Smoother, Sample, list[StepInfo]]:
    prior, infos = Smoother(), list[StepInfo]()
    result = driver.sample(
        prior,
        measured(operator),
        HalfQuadratic(steps=steps, inner_steps=30),
        grid=GRID,
        generator=torch.Generator().manual_seed(0),
        batch=batch,
        on_step=infos.append,
        **options,
    )
    return prior, result, infos


def test_noise_falls_in_equal_ratios_to_a_level_of_the_measurement() -> None:
    levels = [sigma for _, sigma in restored(Bound(halved))[0].seen]
    sampler = HalfQuadratic()
    assert levels[0] == pytest.approx(sampler.first_noise)
    assert levels[-1] == pytest.approx(sampler.last_noise * SIGMA**0.5)
    ratios = [after / before for before, after in pairwise(levels)]
    assert ratios == pytest.approx([ratios[0]] * 3)


@pytest.mark.parametrize("operator", [Bound(halved), missing(EVERY_THIRD_11HW)])
def test_the_prior_sees_its_last_picture_fitted_to_the_measurement(operator: Bound) -> None:
    """The minimum of two squares, here from its linear equations."""
    prior, _, infos = restored(operator)
    weight, objective = HalfQuadratic().prior_weight, measured(operator)
    unit_NCHW = torch.eye(3 * 64).view(-1, 3, *GRID)
    matrix_MN = operator(unit_NCHW).flatten(1).T
    for number in (1, 2, 3):
        seen_BCHW, level = prior.seen[number]
        z_N = infos[number - 1].x_hat_BCHW.flatten()
        held = weight / level**2
        left = matrix_MN.T @ matrix_MN / SIGMA**2 + held * torch.eye(3 * 64)
        right = matrix_MN.T @ objective.y_BCHW.flatten() / SIGMA**2 + held * z_N
        expected_BCHW = torch.linalg.solve(left, right).view(1, 3, *GRID)
        laid_BCHW = view(number, 4, turned=True).apply(expected_BCHW)
        torch.testing.assert_close(seen_BCHW, laid_BCHW, atol=5e-3, rtol=0)


def test_of_white_noise_alone_every_round_sees_the_measurement_and_the_mean_counts() -> None:
    identity = Bound(lambda x_BCHW: x_BCHW)
    prior, result, infos = restored(identity)
    y_BCHW, answers = measured(identity).y_BCHW, []
    for number, (seen_BCHW, level) in enumerate(prior.seen):
        seen = view(number, 4, turned=True)
        torch.testing.assert_close(seen_BCHW, seen.apply(y_BCHW))
        assert level == pytest.approx(SIGMA)
        answers.append(seen.undo(Smoother().without_noise(seen_BCHW, level)[0]))
    expected_BCHW = torch.stack(answers).mean(0).clamp(-1, 1)
    torch.testing.assert_close(result.x_BCHW, expected_BCHW, atol=2e-3, rtol=0)
    assert (answers[0] - answers[1]).abs().max() > 0.01
    assert all(not info.loss_curve for info in infos)


def test_noise_that_differs_from_value_to_value_is_fitted() -> None:
    """Pixels without noise stay; others become smoother."""
    objective = measured(Bound(lambda x_BCHW: x_BCHW))
    spread_CHW = torch.full((3, *GRID), 0.2)
    spread_CHW[:, ::2] = 1e-3
    varied = MeasurementObjective(objective.operator, objective.y_BCHW[0], spread_CHW, "l2")
    prior = Smoother()
    generator = torch.Generator().manual_seed(0)
    driver.sample(prior, varied, HalfQuadratic(steps=3), grid=GRID, generator=generator)
    seen_BCHW = view(2, 3, turned=True).undo(prior.seen[-1][0])
    change_BCHW = (seen_BCHW - objective.y_BCHW).abs()
    assert change_BCHW[:, :, ::2].max() < 0.01
    assert change_BCHW[:, :, 1::2].mean() > 0.02


def test_clipped_values_may_lie_beyond_the_limit() -> None:
    doubled = Bound(lambda x_BCHW: 3 * x_BCHW, clips=True)
    prior, _, _ = restored(doubled)
    seen_BCHW = view(3, 4, turned=True).undo(prior.seen[-1][0])
    objective = measured(doubled)
    inside_BCHW = objective.inside_BCHW
    off_BCHW = doubled(seen_BCHW) - objective.y_BCHW
    assert 0.1 < inside_BCHW.float().mean() < 0.9
    assert off_BCHW[inside_BCHW].square().mean() < 2 * SIGMA**2
    beyond = objective.y_BCHW[~inside_BCHW].sign() * 3 * seen_BCHW[~inside_BCHW]
    assert beyond.max() > 1.1


@pytest.mark.parametrize("operator", [Bound(halved), Bound(lambda x_BCHW: x_BCHW)])
def test_several_samples_differ_and_one_repeats(operator: Bound) -> None:
    several = restored(operator, batch=4)[1].x_BCHW
    assert several.flatten(1).std(0).mean() > 1e-3
    torch.testing.assert_close(restored(operator)[1].x_BCHW, restored(operator)[1].x_BCHW)


def test_samples_are_shown_as_noisy_as_they_are() -> None:
    alone, several = (
        [sigma for _, sigma in restored(Bound(halved), batch=batch)[0].seen] for batch in (1, 2)
    )
    raised = [more / level for more, level in zip(several, alone, strict=True)]
    assert raised == pytest.approx([1.25**0.5] * 2 + [1.0] * 2)


def test_samples_of_a_single_round_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="all samples are equal"):
        HalfQuadratic(steps=1).for_samples(2)
    assert restored(Bound(halved), steps=1)[1].x_BCHW.isfinite().all()


@pytest.mark.parametrize("operator", [Bound(halved), Bound(lambda x_BCHW: x_BCHW)])
def test_a_resumed_run_tells_the_same(operator: Bound) -> None:
    _, whole, infos = restored(operator, batch=2)
    _, resumed, again = restored(operator, batch=2, resume=infos[1].state)
    assert len(again) == 2
    torch.testing.assert_close(resumed.x_BCHW, whole.x_BCHW)
    torch.testing.assert_close(resumed.z_BL, whole.z_BL)
    assert whole.deviation_BHW is not None
    torch.testing.assert_close(resumed.deviation_BHW, whole.deviation_BHW)


def test_priors_and_problems_that_do_not_suit_are_refused() -> None:
    sampler, generator = HalfQuadratic(steps=1), torch.Generator()
    deaf = cast(Any, type("Deaf", (), {"tokenizer": PixelTokenizer(), "logits": None})())
    with pytest.raises(InvalidSpec, match="needs a prior that removes noise"):
        driver.sample(deaf, measured(Bound(halved)), sampler, grid=GRID, generator=generator)
    with pytest.raises(InvalidSpec, match="needs a measurement"):
        driver.sample(Smoother(), None, sampler, grid=GRID, generator=generator)
    for prior, other in (("embedded", "half_quadratic"), ("embedded_denoiser", "plug_and_play")):
        spec = {"prior": prior, "operator": {"type": "denoise"}, "sampler": {"type": other}}
        with pytest.raises(InvalidSpec, match=f"with '{prior}' choose one of"):
            RestoreSpec.model_validate(spec).resolved()


def test_a_round_reports_its_corrections() -> None:
    heard: list[int] = []
    restored(Bound(halved), on_inner=lambda info: heard.append(info.step))
    assert sorted(set(heard)) == [1, 2, 3, 4]
    with pytest.raises(SamplingCancelled):
        restored(Bound(halved), on_inner=lambda info: info.step < 2)
