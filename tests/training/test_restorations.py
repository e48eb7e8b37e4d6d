"""Random measurements, their first estimates and fits, and a prior that learns from them."""

from argparse import Namespace
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch

from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import Bound
from aps_core.operators.jpeg import JPEG
from aps_core.priors.convolutional.network import (
    Answer,
    ConvolutionalConfig,
    ConvolutionalNet,
    ConvolutionalPrior,
    load_convolutional,
)
from aps_core.priors.embedded.documents import EmbeddedDocumentsPrior
from aps_core.samplers.plug_and_play import AREA_WEIGHT, PlugAndPlay
from aps_core.sampling import shrinkage_estimate
from aps_core.sampling.brightness_fit import square_of_change
from aps_core.tokenizers.pixels import PixelTokenizer
from aps_core.types import MASK
from training import block_rounding, convolutional, fits, random_measurement
from training.convolutional import ConvolutionalLoss, export, parser, shape
from training.convolutional_scores import surprise, validate
from training.documents.prior import KINDS
from training.measurement_kinds import Kinds
from training.random_measurement import RandomMeasurements, Sort
from training.restoration import Restorations

HALF_DECIDED: dict[str, Any] = {"mask_fraction": 0.5, "condition": "", "guidance_scale": 0.0}


def stripes(turned: bool) -> torch.Tensor:
    lying = (torch.arange(64) // 4 % 2 * 2.0 - 1).expand(1, 3, 64, 64)
    return (lying.mT if turned else lying).contiguous()


def measurements(x, count, factor=1):
    generator = torch.Generator().manual_seed(0)
    return RandomMeasurements.of(x.expand(count, -1, -1, -1), factor, generator)


def test_measurements_are_of_many_kinds_and_fit_their_own_picture():
    x = stripes(False)
    made = measurements(x, 60)
    assert len({tuple(k.flatten().tolist()) for k in made.kernel_B1KK}) > 5
    numbers = {sort: made.of_sorts([sort]) for sort in Sort}
    assert all(2 < len(of_sort) < 40 for of_sort in numbers.values())
    beyond = made.beyond_BChw != 0
    assert beyond.flatten(1).any(1).nonzero().flatten().tolist() == numbers[Sort.CLIPPED]
    clipped = made.those(numbers[Sort.CLIPPED])
    fitted = clipped.fitted(torch.zeros_like(clipped.seen_BChw), torch.ones_like(x[:, :1]))
    limit_B111 = clipped.limit_B[:, None, None, None]
    assert (clipped.beyond_BChw * fitted >= limit_B111 * clipped.beyond_BChw.abs() - 1e-6).all()
    assert torch.allclose(made.kernel_B1KK.sum((1, 2, 3)), torch.ones(60))
    reduced = measurements(x, 20, factor=2), measurements(x, 20, factor=4)
    for each in (made, *reduced):
        own = each.negative_log_likelihood(x.expand(each.seen_BChw.shape[0], -1, -1, -1))
        other = each.negative_log_likelihood(stripes(True).expand(len(own), -1, -1, -1))
        assert (other > own).all()
        half = each.known_BChw.flatten(1).sum(1) / 2  # of a chi-squared number
        apart = (own - half) / half.sqrt()
        mixtures = each.of_sorts([Sort.MIXTURES, Sort.GAPS])
        assert apart[mixtures].abs().max() < 4.5
    again = measurements(x, 20, factor=4)
    assert torch.equal(reduced[1].seen_BChw, again.seen_BChw)


def test_compression_counts_as_noise():
    x = stripes(False)
    made = measurements(x, 120)
    own = made.negative_log_likelihood(x.expand(120, -1, -1, -1)) / made.known_BChw[0].numel() * 2
    compressed = made.of_sorts([Sort.COMPRESSED])
    assert own[made.of_sorts([Sort.PIXELS])].sub(1).abs().max() < 0.2
    assert own[compressed].max() < 1.2
    assert own[compressed].min() < 0.5  # rounding of fewer levels than these stripes have


def test_measurements_of_a_batch_are_those_of_its_pictures(monkeypatch):
    """What is computed for all at once: first estimates and fits."""
    monkeypatch.setattr(fits, "FIT_STEPS", 200)
    crops = torch.cat([stripes(False), stripes(True)] * 6)[..., :24, :24]
    for factor in (1, 4):
        made = RandomMeasurements.of(crops, factor, torch.Generator().manual_seed(2))
        precision = torch.rand(12, 1, 24, 24, generator=torch.Generator().manual_seed(1)) * 50 + 1
        estimates, fitted = made.first_estimate(), made.fitted(crops * 0.5, precision)
        for i in range(12):
            alone = made.those([i])
            assert torch.allclose(alone.first_estimate(), estimates[i : i + 1], atol=1e-3)
            one = alone.fitted(crops[i : i + 1] * 0.5, precision[i : i + 1])
            assert torch.allclose(one, fitted[i : i + 1], atol=1e-3)


def test_first_estimates_are_the_samplers():
    """Of blurred and of reduced pictures, at the samplers' number of steps."""
    x = stripes(False) * 0.7
    for factor in (1, 2):
        made = measurements(x, 12, factor)
        estimates = made.first_estimate()
        mixtures = made.of_sorts([Sort.MIXTURES])
        expected = torch.cat(
            [
                shrinkage_estimate.shrinkage_estimate(
                    made.those([i]), torch.zeros_like(x), float(made.sigma_B[i]), steps=150
                )
                for i in mixtures
            ]
        )
        apart_B, errors_B = (
            (estimates[mixtures] - other).square().mean((1, 2, 3)).sqrt() for other in (expected, x)
        )
        assert len(apart_B) > 3
        assert apart_B.mean() < 0.2 * errors_B.mean()


def small(sort):
    """A random picture, its noisiest measurement of a sort, and a generator of more random numbers.
    With less noise, systems are worse conditioned.
    """
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(1, 3, 14, 14, generator=generator) * 2 - 1
    made = measurements(x, 20)
    noisiest = max(made.of_sorts([sort]), key=lambda i: float(made.sigma_B[i]))
    return x, made.those([noisiest]), generator


@pytest.mark.parametrize("sort", [Sort.MIXTURES, Sort.COMPRESSED])
def test_a_fit_is_where_a_newton_step_ends(monkeypatch, sort):
    """In brightness, of a small picture; the energy is a parabola."""
    monkeypatch.setattr(fits, "FIT_STEPS", 200)
    x, measurement, generator = small(sort)
    deviation_11HW = torch.rand(1, 1, 14, 14, generator=generator) + 0.1
    fitted = measurement.fitted(x * 0.5, deviation_11HW**-2)

    def energy(change: torch.Tensor) -> torch.Tensor:
        moved = change.view(1, 14, 14)
        square = square_of_change(moved, AREA_WEIGHT)
        divergence = (square / deviation_11HW[0].square()).sum() / 2
        return measurement.negative_log_likelihood(x * 0.5 + moved[:, None]).sum() + divergence

    nothing = torch.zeros(196)
    hessian = torch.autograd.functional.hessian(energy, nothing)
    change = torch.linalg.solve(hessian, -torch.autograd.functional.jacobian(energy, nothing))
    assert energy(change) < 0.95 * energy(nothing)
    assert torch.allclose((fitted - x * 0.5)[0], change.view(14, 14).expand(3, -1, -1), atol=2e-3)


def test_a_jpeg_is_as_likely_as_in_the_service():
    x = stripes(False)
    made = measurements(x, 60)
    compressed = made.of_sorts([Sort.COMPRESSED])[0]
    alone = made.those([compressed])
    rounded = JPEG(quality=30).likelihood_noise(0.1)
    alone = replace(alone, rounding_BC88=block_rounding.precision(rounded)[None])
    objective = MeasurementObjective(Bound(lambda x: x), alone.seen_BChw, rounded, "l2").whitened()
    for other in (x, stripes(True), torch.zeros_like(x)):
        torch.testing.assert_close(
            alone.negative_log_likelihood(other),
            objective.negative_log_likelihood(other),
            rtol=1e-4,
            atol=0,
        )


def test_gradients_of_a_fit_are_its_differences(monkeypatch):
    """In the picture that is fitted, and in the precision with which it holds."""
    monkeypatch.setattr(fits, "FIT_STEPS", 200)
    x, measurement, generator = small(Sort.MIXTURES)
    measurement = replace(measurement, sigma_B=torch.tensor([0.3]))
    precision_11HW = 1 + 10 * torch.rand(1, 1, 14, 14, generator=generator)
    weights = torch.randn(x.shape, generator=generator)
    inputs = [(x * 0.5).requires_grad_(), precision_11HW.requires_grad_()]
    (measurement.fitted(*inputs) * weights).sum().backward()
    for moved in (0, 1):
        uphill = inputs[moved].grad / inputs[moved].grad.norm()
        ends = []
        for step in (0.1, -0.1):
            end = [t.detach() for t in inputs]
            end[moved] = end[moved] + step * uphill
            ends.append(float((measurement.fitted(*end) * weights).sum()))
        slope = (ends[0] - ends[1]) / 0.2
        assert slope == pytest.approx(float(inputs[moved].grad.norm()), rel=0.02)


def test_first_estimates_fill_gaps_smoothly():
    slope = torch.linspace(-0.8, 0.8, 64)
    x = (0.5 * slope[:, None] + 0.5 * slope).expand(1, 3, 64, 64).contiguous()
    made = measurements(x, 60)
    gaps = made.those(made.of_sorts([Sort.GAPS]))
    errors_B = (gaps.first_estimate() - x).square().flatten(1).mean(1).sqrt()
    assert len(errors_B) > 3
    assert (errors_B < 2 * gaps.sigma_B).all()


def test_clipped_pixels_go_as_far_beyond_the_limit_as_in_restorations():
    """With few, long steps farther, so the steps are those of the prior's sampler."""
    far = {}
    for steps in (20, 200):
        kinds = Kinds(clipped_smoothness=2.0, filling_steps=steps)
        made = RandomMeasurements.of(
            stripes(False).expand(60, -1, -1, -1), 1, torch.Generator().manual_seed(0), kinds
        )
        clipped = made.those(made.of_sorts([Sort.CLIPPED]))
        beyond = clipped.beyond_BChw != 0
        far[steps] = float(clipped.first_estimate()[beyond].abs().mean())
    assert far[20] > far[200] + 0.1
    settings = PlugAndPlay(**EmbeddedDocumentsPrior.recommended_for(PlugAndPlay))
    assert settings.filling_steps == KINDS.filling_steps
    assert settings.clipped_smoothness == KINDS.clipped_smoothness


def test_first_estimates_come_before_the_rounds():
    """A network that knows the pictures restores them in one round."""
    x = stripes(False).expand(2, -1, -1, -1)
    restorations = Restorations.of(x, 2, torch.Generator().manual_seed(0))
    first = restorations.estimate_BCHW
    fitted = restorations.fitted(x, torch.full((2, 64 * 64), 0.001**-2))
    restorations.advance(fitted, torch.zeros(2, 64, 64))
    assert restorations.rounds == 1
    assert (restorations.estimate_BCHW - x).abs().mean() < 0.1 * (first - x).abs().mean()


def test_pixels_measured_by_themselves_are_restored_from_the_first_estimate_again():
    """Others from the last result."""
    made = Restorations.of(stripes(False).expand(60, -1, -1, -1), 1, torch.Generator())
    first, fitted = made.estimate_BCHW, torch.full_like(made.x_BCHW, 0.5)
    made.advance(fitted, torch.zeros(60, 64, 64))
    for sort in Sort:
        expected = first if sort in (Sort.PIXELS, Sort.CLIPPED) else fitted
        numbers = made.measurements.of_sorts([sort])
        assert torch.equal(made.estimate_BCHW[numbers], expected[numbers])


def test_a_continuous_network_is_scored_by_its_normal_distribution():
    """In nats of a level: the entropy of noise of one standard deviation, whatever the levels."""
    tokenizer, generator = PixelTokenizer(), torch.Generator().manual_seed(0)
    y = torch.rand(1, 1, 64, 64, generator=generator) - 0.5
    drawn = torch.randn(1, 64 * 64, generator=generator)
    nothing, ones = torch.zeros(1, 64 * 64, 16), torch.ones(1, 64 * 64)

    def surprised(deviation: float) -> float:
        mean = y.flatten(1) + 0.1 * drawn
        said = Answer(
            y_BLY=nothing,
            colour_BL4=nothing[..., :4],
            mean_BL=mean,
            variance_BL=ones * deviation**2,
            colours_BCHW=y,
            weight_BL=ones,
        )
        x = y.expand(1, 3, -1, -1)
        return float(surprise(said, x, torch.tensor([True]), tokenizer, True).mean())

    entropy = 0.5 + 0.5 * np.log(2 * np.pi * 0.1**2) - np.log(2 / 15)
    assert surprised(0.1) == pytest.approx(entropy, abs=0.05)
    assert min(surprised(0.05), surprised(0.2)) > surprised(0.1) + 0.2


@pytest.mark.parametrize("continuous", [False, True])
def test_the_convolutional_prior_learns_from_decided_tokens_and_from_an_estimate(
    tmp_path, monkeypatch, continuous
):
    """Two sorts of pictures, stripes and the same inverted: one neighbour tells which."""
    monkeypatch.setattr(fits, "FIT_STEPS", 4)
    monkeypatch.setattr(shrinkage_estimate, "ROUNDS", 3)
    monkeypatch.setattr(random_measurement, "ESTIMATE_STEPS", 20)
    monkeypatch.setattr(convolutional, "WITH_TOKENS", 0.5)
    monkeypatch.setattr(convolutional, "POOL", 2)
    # whatever training's mixture is; most of these few pictures are blurred
    shares = {Sort.GAPS: 0.15, Sort.CLIPPED: 0.08, Sort.COMPRESSED: 0.12}
    monkeypatch.setattr(random_measurement, "SHARES", shares)
    torch.manual_seed(0)
    tokenizer = PixelTokenizer()
    config = ConvolutionalConfig(bits=6, width=16, blocks=2, kernel=3, continuous=continuous)
    net = ConvolutionalNet(config)
    sign = torch.tensor([-1.0, 1.0]).repeat(4)[:, None, None, None]
    pictures = (0.8 * sign * stripes(False)[..., 2:18, 2:18]).contiguous()  # not clipped
    drawn = cycle(pictures)

    def draw(count: int) -> torch.Tensor:
        return torch.stack([next(drawn) for _ in range(count)])

    loss = ConvolutionalLoss(net, tokenizer, draw, 8, 0.1, 2, True, KINDS, 0)
    adam = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(240 if continuous else 120):
        value, _ = loss(0.0)
        adam.zero_grad()
        value.backward()
        adam.step()
    scores = validate(net, tokenizer, pictures, 2, KINDS)
    assert max(scores["nll_quarter"], scores["nll_half"]) < scores["nll_all"] - 0.1
    assert continuous or scores["nll_denoised_all"] < scores["nll_all"] - 0.1
    assert scores["psnr_restored"] > scores["psnr_first"] + 0.5
    export(net, tmp_path, config)
    again = load_convolutional(tmp_path, tokenizer, "cpu", torch.float32)
    z_BL = tokenizer.encode(pictures).masked_fill(torch.arange(256) % 2 == 0, MASK)
    asked = {**HALF_DECIDED, "grid": (16, 16)}
    expected = ConvolutionalPrior(net, tokenizer).logits(z_BL, **asked)
    assert torch.allclose(again.logits(z_BL, **asked), expected, atol=0.05)


def test_a_run_keeps_its_shape_and_may_grow_what_it_starts_from(tmp_path):
    def asked(**fields) -> ConvolutionalConfig:
        given = parser("").parse_args(["--corpus", "C", "--out", str(tmp_path / "run")])
        return shape(Namespace(**{**vars(given), **fields}), 6)

    assert asked() == ConvolutionalConfig(bits=6)
    begun = ConvolutionalConfig(bits=6, blocks=3, width=16)
    (tmp_path / "config.json").write_text(begun.model_dump_json())
    assert asked(start=tmp_path) == begun
    grown = asked(start=tmp_path, blocks=4)
    assert grown == begun.model_copy(update={"blocks": 4})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(grown.model_dump_json())
    assert asked() == asked(start=tmp_path) == grown
