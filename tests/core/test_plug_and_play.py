"""The plug-and-play sampler, and the fit of brightness in its rounds."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aps_core.errors import InvalidSpec, SamplingDiverged
from aps_core.imaging.dct_shrinkage import without_noise
from aps_core.imaging.known_pixels import flat_share, inside_clipped
from aps_core.numerics.likelihood import Pixels
from aps_core.numerics.steepest_descent import steepest_step
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators.base import Bound
from aps_core.priors.convolutional.network import (
    ConvolutionalConfig,
    ConvolutionalNet,
    ConvolutionalPrior,
)
from aps_core.samplers.plug_and_play import AREA_WEIGHT, PlugAndPlay
from aps_core.sampling import driver
from aps_core.sampling.brightness_fit import BrightnessFit
from aps_core.sampling.first_estimate import classical_estimate
from aps_core.sampling.inner_watch import InnerWatch
from aps_core.sampling.shrinkage_estimate import shrinkage_estimate
from aps_core.sampling.views import denoised_in, view
from aps_core.tasks.restore import RestoreSpec
from aps_core.tokenizers.pixels import PixelTokenizer, brightness
from aps_core.types import MASK, Denoised, Sample, StepInfo

GRID = (8, 8)
EVERY_THIRD_11HW = (torch.arange(64).view(1, 1, *GRID) % 3 == 0).float()
CONFIG = ConvolutionalConfig(bits=6, width=16, blocks=2, kernel=3, patch=2)
SILENT = InnerWatch(None, 1, 1)


class Listener(ConvolutionalPrior):
    """Remembers what it is given and shown."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        net = ConvolutionalNet(CONFIG)
        nn.init.normal_(net.head.weight, std=0.05)
        super().__init__(net, PixelTokenizer())
        self.heard: list[Tensor] = []
        self.pulled: list[Tensor] = []

    def denoise(self, estimate_BCHW: Tensor, pulled_BCHW: Tensor) -> Denoised:
        self.heard.append(estimate_BCHW)
        self.pulled.append(pulled_BCHW)
        return super().denoise(estimate_BCHW, pulled_BCHW)


def picture() -> Tensor:
    smooth = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(4)) * 2 - 1
    return F.interpolate(smooth, GRID, mode="bilinear")


def halved(x_BCHW: Tensor) -> Tensor:
    return F.avg_pool2d(x_BCHW, 2)


def missing(weight_11HW: Tensor) -> Bound:
    return Bound(lambda x_BCHW: x_BCHW * weight_11HW, weight=weight_11HW)


def measured(operator: Bound, sigma: float = 0.05) -> MeasurementObjective:
    y_BCHW = operator(picture())
    noise = torch.randn(y_BCHW.shape, generator=torch.Generator().manual_seed(5))
    return MeasurementObjective(operator, (y_BCHW + sigma * noise)[0], sigma, "l2")


def listening(
    batch: int = 1,
    objective: MeasurementObjective | None = None,
    turned: bool = False,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Listener, Sample, list[StepInfo]]:
    prior, infos = Listener(), list[StepInfo]()
    result = driver.sample(
        prior,
        objective or measured(Bound(halved)),
        PlugAndPlay(
            steps=3,
            inner_steps=5,
            turned=turned,
            **(settings or {}),
        ),
        grid=GRID,
        generator=torch.Generator().manual_seed(0),
        batch=batch,
        on_step=infos.append,
        **options,
    )
    return prior, result, infos


@pytest.mark.parametrize("turned", [False, True])
def test_every_round_tells_the_last_estimate_in_another_view(turned: bool) -> None:
    objective = measured(Bound(halved))
    prior, result, infos = listening(objective=objective, turned=turned)
    assert len(prior.heard) == 3
    first = shrinkage_estimate(objective, torch.zeros(1, 3, *GRID), 0.05, steps=150)
    estimates = [first, *(info.x_hat_BCHW for info in infos)]
    for i, heard in enumerate(prior.heard):
        laid = view(i, 3, turned).apply(estimates[i].clamp(-1, 1))
        torch.testing.assert_close(heard, laid, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(result.x_BCHW, estimates[-1].clamp(-1, 1), atol=1e-3, rtol=1e-3)


def test_the_first_estimate_takes_the_given_steps() -> None:
    objective = measured(Bound(halved))
    first, longer = (
        listening(objective=objective, settings={"first_steps": steps})[0].heard[0]
        for steps in (2, 300)
    )
    expected = shrinkage_estimate(objective, torch.zeros(1, 3, *GRID), 0.05, steps=300)
    torch.testing.assert_close(longer, expected, atol=1e-3, rtol=1e-3)
    assert (first - longer).abs().mean() > 0.05


def test_gaps_are_filled_in_steps_of_their_own() -> None:
    def first(**settings: int) -> Tensor:
        objective = measured(missing(EVERY_THIRD_11HW))
        return listening(objective=objective, settings=settings)[0].heard[0]

    usual = first(filling_steps=100)
    torch.testing.assert_close(first(filling_steps=100, first_steps=2), usual)
    assert (first(filling_steps=2) - usual).abs().mean() > 0.05


def test_colours_are_fitted_to_mixtures_of_pixels_alone() -> None:
    for operator, fitted in ((halved, True), (lambda x_BCHW: x_BCHW, False)):
        objective = measured(Bound(operator))
        usual, coloured = (
            listening(objective=objective, settings={"colour_weight": weight})[2]
            for weight in (0, 8)
        )
        change = (usual[0].x_hat_BCHW - coloured[0].x_hat_BCHW).abs().amax()
        assert (change > 0.01) == fitted
        assert brightness(usual[0].x_hat_BCHW - coloured[0].x_hat_BCHW).abs().amax() < 1e-4
        assert (coloured[0].misfit < usual[0].misfit) == fitted


def test_every_round_tells_the_measurement_where_pixels_are_measured() -> None:
    objective = measured(Bound(lambda x_BCHW: x_BCHW))
    prior, _, _ = listening(objective=objective)
    for i, pulled in enumerate(prior.pulled):
        seen_BCHW = view(i, 3, turned=False).undo(pulled)
        torch.testing.assert_close(seen_BCHW, objective.y_BCHW.clamp(-1, 1), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "operator", [Bound(lambda x_BCHW: x_BCHW), Bound(lambda x_BCHW: 2 * x_BCHW, clips=True)]
)
def test_of_noisy_or_clipped_pixels_every_round_hears_the_first_estimate(operator: Bound) -> None:
    """And the mean of the answers is the result, even of a run that is resumed; of clipped pictures
    where values were clipped, and if asked for, not inside of clipped areas.
    """
    objective = measured(operator)
    kept = {"clipped_reach": 1}
    prior, result, infos = listening(objective=objective, turned=True, settings=kept)
    first = classical_estimate(objective, torch.zeros(1, 3, *GRID), 150, 0)
    answers = []
    for i, (heard, pulled) in enumerate(zip(prior.heard, prior.pulled, strict=True)):
        seen = view(i, 3, turned=True)
        torch.testing.assert_close(seen.undo(heard), first, atol=1e-3, rtol=0)
        said = denoised_in(Listener(), seen, seen.undo(heard), seen.undo(pulled))
        fit = BrightnessFit(objective, said, 1.0, AREA_WEIGHT)
        fit.run(5, SILENT)
        answers.append(fit.x_hat_BCHW)
    assert (answers[0] - answers[1]).abs().max() > 0.01
    seen_pixels = objective.pixels(first)
    assert seen_pixels is not None
    assert bool(seen_pixels.known_BCHW.all()) != operator.clips
    means = [torch.stack(answers[: i + 1]).mean(0) for i in range(len(answers))]
    flat_B1HW = flat_share(first)
    seen_BCHW = seen_pixels.known_BCHW & operator.clips
    last = first.where(seen_BCHW, means[-1])
    inside = inside_clipped(seen_pixels, last, first, 1)
    expected = [*means[:-1], inside.lerp(first, flat_B1HW)]
    for info, mean in zip(infos, expected, strict=True):
        torch.testing.assert_close(info.x_hat_BCHW, mean, atol=2e-3, rtol=0)
    torch.testing.assert_close(result.x_BCHW, infos[-1].x_hat_BCHW.clamp(-1, 1), atol=1e-3, rtol=0)
    resumed = listening(objective=objective, turned=True, resume=infos[1].state, settings=kept)[1]
    torch.testing.assert_close(resumed.x_BCHW, result.x_BCHW)
    usual = listening(objective=objective, turned=True)[2][-1]
    torch.testing.assert_close(usual.x_hat_BCHW, last.lerp(first, flat_B1HW), atol=2e-3, rtol=0)


def test_pixels_beside_missing_ones_are_finally_the_measured_ones_without_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the last round."""
    calls: list[tuple[Pixels, Tensor]] = []

    def remembered(seen: Pixels, filled_BCHW: Tensor) -> Tensor:
        calls.append((seen, filled_BCHW))
        return without_noise(seen, filled_BCHW)

    monkeypatch.setattr("aps_core.imaging.known_pixels.without_noise", remembered)
    objective = measured(missing(EVERY_THIRD_11HW))
    result, infos = listening(objective=objective)[1:]
    ((seen, fitted_BCHW),) = calls
    assert torch.equal(seen.y_BCHW, objective.y_BCHW)
    torch.testing.assert_close(infos[-1].x_hat_BCHW, without_noise(seen, fitted_BCHW))
    torch.testing.assert_close(result.x_BCHW, infos[-1].x_hat_BCHW, atol=1e-3, rtol=0)
    listening(objective=measured(Bound(halved)))
    assert len(calls) == 1


def test_a_large_hole_takes_the_colours_around_it() -> None:
    """Of a dark picture, with an untrained network; far inside, no pixel knows of any other."""
    grid, weight_11HW = (64, 64), torch.ones(1, 1, 64, 64)
    weight_11HW[..., 8:56, 8:56] = 0
    dark_BCHW = torch.full((1, 3, *grid), -0.7)
    operator = missing(weight_11HW)
    objective = MeasurementObjective(operator, operator(dark_BCHW)[0], 0.05, "l2")
    result = driver.sample(
        ConvolutionalPrior(ConvolutionalNet(CONFIG), PixelTokenizer()),
        objective,
        PlugAndPlay(steps=1),
        grid=grid,
        generator=torch.Generator(),
    )
    assert (result.x_BCHW - dark_BCHW).abs().max() < 0.05


def test_one_colour_stays_one_colour_whatever_the_prior_expects() -> None:
    """Of a reduced picture, in the last round only."""
    dark_CHW = halved(torch.full((1, 3, *GRID), -0.7))[0]
    objective = MeasurementObjective(Bound(halved), dark_CHW, 0.05, "l2")
    *_, result, infos = listening(objective=objective)
    errors = [(info.x_hat_BCHW + 0.7).abs().max() for info in infos]
    assert errors[-2] > 0.02
    assert errors[-1] < 0.005
    torch.testing.assert_close(result.x_BCHW, infos[-1].x_hat_BCHW, atol=1e-3, rtol=0)


def test_a_step_towards_a_measurement_is_as_long_as_the_parabola_demands() -> None:
    """Against a search on a grid, of a measurement of mixtures; none without a slope."""
    objective, x_BCHW = measured(Bound(halved)), 0.5 * picture()
    change_BCHW = steepest_step(objective, x_BCHW) - x_BCHW

    def loss(share: float) -> float:
        return float(objective.negative_log_likelihood(x_BCHW + share * change_BCHW))

    assert loss(1.0) < 0.9 * loss(0.0)
    assert min(loss(0.01 * n) for n in range(301)) == pytest.approx(loss(1.0), rel=1e-5)
    flat = MeasurementObjective(Bound(lambda x_BCHW: 0 * x_BCHW), picture()[0], 0.1, "l2")
    assert torch.equal(steepest_step(flat, x_BCHW), x_BCHW)


def test_a_round_takes_no_more_corrections_than_asked_for() -> None:
    _, _, infos = listening()
    for info in infos:
        assert 2 <= len(info.loss_curve) <= 8, "5 steps, and what the last line search needs"
        assert info.loss_curve[-1] < info.loss_curve[0]


def test_no_token_is_decided_before_the_last_round() -> None:
    prior, result, infos = listening()
    assert [bool((info.state.z_BL == MASK).all()) for info in infos] == [True, True, False]
    assert torch.equal(result.z_BL, prior.tokenizer.encode(infos[-1].x_hat_BCHW))


def test_padding_and_pixels_with_a_missing_colour_are_not_known() -> None:
    """Of every sample; the operator may measure less than the token grid."""
    weight_1CHW = torch.ones(1, 3, 6, 8)
    weight_1CHW[0, 1, 2, 3] = 0
    weight_1CHW[0, :, 5, 7] = 0
    operator = Bound(lambda x_BCHW: x_BCHW[..., :6, :] * weight_1CHW, weight=weight_1CHW)
    objective = MeasurementObjective(operator, operator(picture())[0], 0.05, "l2")
    pixels = objective.pixels(picture().expand(2, -1, -1, -1))
    assert pixels is not None
    assert pixels.known_BCHW.shape == (2, 3, *GRID)
    known_BHW = pixels.known_BCHW.all(1)
    assert known_BHW.sum(dim=(1, 2)).tolist() == [46, 46]
    assert not known_BHW[0, 2, 3]
    assert not known_BHW[0, 6:].any()


def test_several_samples_differ_and_one_repeats() -> None:
    several = listening(batch=4)[0].heard[1]
    assert several.flatten(1).std(0).mean() > 0.01
    torch.testing.assert_close(listening()[1].x_BCHW, listening()[1].x_BCHW)


def test_samples_get_noise_in_the_first_half_of_the_rounds() -> None:
    prior, _, infos = listening(batch=4)
    ends = [view(i + 1, 3, False).apply(infos[i].x_hat_BCHW.clamp(-1, 1)) for i in (0, 1)]
    after_first, after_second = (prior.heard[i + 1] - ends[i] for i in (0, 1))
    assert after_first.abs().mean() > 0.01
    assert after_second.abs().mean() < 1e-3


def test_samples_of_a_single_round_are_refused() -> None:
    spec = {"operator": {"type": "denoise"}, "prior": "embedded_documents", "num_samples": 2}
    job = RestoreSpec.model_validate({**spec, "sampler": {"type": "plug_and_play", "steps": 1}})
    with pytest.raises(InvalidSpec, match="all samples are equal"):
        job.resolved()
    assert job.model_copy(update={"num_samples": 1}).resolved().sampler.steps == 1


def test_a_resumed_run_tells_the_same() -> None:
    prior, whole, infos = listening(batch=2)
    again, resumed, _ = listening(batch=2, resume=infos[0].state)
    assert len(again.heard) == 2
    for heard, before in zip(again.heard, prior.heard[1:], strict=True):
        torch.testing.assert_close(heard, before)
    torch.testing.assert_close(resumed.z_BL, whole.z_BL)
    torch.testing.assert_close(resumed.x_BCHW, whole.x_BCHW)
    assert whole.deviation_BHW is not None
    torch.testing.assert_close(resumed.deviation_BHW, whole.deviation_BHW)


def fit(
    operator: Bound,
    prior_weight: float,
    firm_BL: Tensor | None = None,
    area_weight: float = 1.0,
) -> tuple[BrightnessFit, MeasurementObjective, Denoised]:
    """A fit of a random prediction, run to its end."""
    objective, tokenizer = measured(operator, 0.2), PixelTokenizer()
    generator = torch.Generator().manual_seed(6)
    mean_BL = torch.rand(1, 64, generator=generator) - 0.5
    variance_BL = 0.1 + 0.4 * torch.rand(1, 64, generator=generator)
    colours_BCHW = tokenizer.colours(picture(), torch.zeros(1, 2, *GRID))
    weight_BL = torch.ones(1, 64) if firm_BL is None else firm_BL
    denoised = Denoised(mean_BL, variance_BL, colours_BCHW, weight_BL)
    made = BrightnessFit(objective, denoised, prior_weight, area_weight)
    curve = made.run(200, SILENT)
    assert curve[-1] < curve[0]
    return made, objective, denoised


def test_a_fit_is_the_best_of_every_single_pixel() -> None:
    """If pixels are measured by themselves, each has a problem of its own: a weighted mean."""
    firm_BL = torch.linspace(0.3, 3.0, 64)[None]
    made, objective, denoised = fit(Bound(lambda x_BCHW: x_BCHW), 0.5, firm_BL)
    mean_L, variance_L = denoised.mean_BL[0], denoised.variance_BL[0]
    seen_L = (objective.y_BCHW[0] - made.colours_BCHW[0]).mean(0).flatten()
    held_L, measured = 0.5 * firm_BL[0] / variance_L, 3 / 0.2**2
    best_L = (held_L * mean_L + measured * seen_L) / (held_L + measured)
    torch.testing.assert_close(brightness(made.x_hat_BCHW).flatten(), best_L, atol=1e-3, rtol=0)
    assert (best_L - mean_L).abs().mean() > 0.1


def test_a_fit_agrees_with_the_measurement_and_is_held_back_by_the_prior() -> None:
    misfits = [float(fit(Bound(halved), weight)[0].misfit_B) for weight in (0.01, 1.0, 100.0)]
    assert misfits == sorted(misfits)
    assert misfits[0] < 0.2 * misfits[2]


def test_the_brightness_of_areas_is_for_the_measurement_if_areas_weigh_nothing() -> None:
    def off(area_weight: float) -> tuple[float, float]:
        """Of a fit that is held back much: how far the mean and single pixels are from the
        prior's.
        """
        made, objective, denoised = fit(Bound(lambda x_BCHW: x_BCHW), 100.0, None, area_weight)
        change_BL = brightness(made.x_hat_BCHW).flatten(1) - denoised.mean_BL
        seen_BL = brightness(objective.y_BCHW - made.colours_BCHW).flatten(1) - denoised.mean_BL
        return float(change_BL.mean() / seen_BL.mean()), float(change_BL.std() / seen_BL.std())

    mean, single = off(0.0)
    assert mean > 0.95
    assert single < 0.3
    mean, single = off(1.0)
    assert mean < 0.3
    assert single < 0.3


def test_a_fit_that_diverges_says_so() -> None:
    with pytest.raises(SamplingDiverged, match="became nan"):
        fit(Bound(lambda x_BCHW: x_BCHW * torch.nan), 1.0)


def test_a_prior_that_is_no_denoiser_is_refused() -> None:
    prior = Listener()
    deaf = cast(Any, SimpleNamespace(tokenizer=prior.tokenizer, logits=prior.logits))
    with pytest.raises(InvalidSpec, match="needs a prior that is also a denoiser"):
        driver.sample(
            deaf,
            measured(Bound(halved)),
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


def test_a_longer_first_estimate_is_counted_as_work() -> None:
    """A thousand steps cost more than all rounds."""

    def work(**changed: int) -> int:
        sampler = {"type": "plug_and_play", **changed}
        spec = RestoreSpec.model_validate(
            {"operator": {"type": "denoise"}, "prior": "embedded_documents", "sampler": sampler}
        )
        return spec.work((128, 128))[1]

    usual = work()
    assert work(first_steps=1000) > 1.5 * usual
    assert work(filling_steps=1000) > 1.5 * usual
    assert work(steps=16) > 1.5 * usual


def test_the_result_has_a_share_of_the_first_estimate() -> None:
    """The rounds are the same; a run that is resumed ends likewise."""
    objective = measured(Bound(halved))
    prior, alone, infos = listening(objective=objective)
    mixed: dict[str, Any] = {"objective": objective, "settings": {"classical_share": 0.25}}
    second, both, both_infos = listening(**mixed)
    torch.testing.assert_close(prior.heard, second.heard)
    expected = 0.75 * infos[-1].x_hat_BCHW + 0.25 * prior.heard[0]
    torch.testing.assert_close(both_infos[-1].x_hat_BCHW, expected, atol=2e-3, rtol=1e-3)
    torch.testing.assert_close(both.x_BCHW, expected.clamp(-1, 1), atol=2e-3, rtol=1e-3)
    assert (both.x_BCHW - alone.x_BCHW).abs().max() > 0.01
    _, resumed, _ = listening(**mixed, resume=both_infos[0].state)
    torch.testing.assert_close(resumed.x_BCHW, both.x_BCHW)
