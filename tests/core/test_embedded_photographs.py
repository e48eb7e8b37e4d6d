"""The embedded photographs prior: what it gains, and at what it is used."""

from pathlib import Path

import pytest
import torch

from aps_core import evaluation
from aps_core.evaluation.metrics import psnr
from aps_core.operators import OperatorSpec
from aps_core.priors.embedded.photographs import EmbeddedPhotographsPrior
from aps_core.tokenizers.pixels import brightness
from tests.engines import image_engine

PHOTOS = Path(__file__).parents[2] / "examples" / "photos"
NAMES = ("chelsea", "coffee", "hedgehog", "garden")


@pytest.fixture(scope="module")
def engine():
    return image_engine("embedded_photographs")


@pytest.fixture(scope="module")
def photos():
    found = dict(evaluation.photographs(PHOTOS, 128))
    return {name: found[name] for name in NAMES}


@pytest.mark.parametrize(("task", "gain"), [("gaussian_blur", 0.5), ("hdr", 1.0), ("sr4", 0.1)])
def test_restorations_are_better_than_tuned_classical_ones(engine, photos, task, gain):
    setup, gains = evaluation.Setup.recommended(engine), []
    for name, x_CHW in photos.items():
        case = evaluation.make_case(engine, setup, "native", task, name, x_CHW, 0.05, 0)
        variant = evaluation.Variant(engine.spec.restoring_sampler)
        restored, _, _ = evaluation.run_method(engine, setup, case, variant, 0)
        classical = evaluation.BASELINES["tv"](case)
        gains.append(float(psnr(restored, x_CHW[None]) - psnr(classical, x_CHW[None])))
    assert sum(gains) / len(gains) > gain


def test_smooth_pictures_are_not_drawn_to_levels(engine):
    """A blurred slope with noise comes back as a slope, not as steps between the 16 levels, whose
    rounding alone has an error of 0.038. (The documents prior has 0.023 here.)
    """
    slope = torch.linspace(-0.5, 0.5, 64).expand(1, 3, 64, 64)
    setup = evaluation.Setup.recommended(engine)
    case = evaluation.make_case(
        engine, setup, "native", "gaussian_blur", "slope", slope[0], 0.05, 0
    )
    variant = evaluation.Variant(engine.spec.restoring_sampler)
    restored, _, _ = evaluation.run_method(engine, setup, case, variant, 0)
    assert (brightness(restored) - brightness(slope)).square().mean().sqrt() < 0.015


def test_it_is_chosen_for_operators_that_exist():
    assert EmbeddedPhotographsPrior.operators <= set(OperatorSpec.family)
