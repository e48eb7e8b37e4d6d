"""Blind deblurring: EM against the exact posterior over the width, its likelihood, and its job."""

from pathlib import Path

import pytest
import torch

from aps_core.errors import NothingToRestore, SamplingCancelled
from aps_core.identify.blind import photograph
from aps_core.identify.blind.effort import Effort
from aps_core.identify.blind.em import Estimate, expectation_maximisation
from aps_core.identify.blind.families import FAMILIES
from aps_core.identify.blind.likelihood import UnseenDetail, WhiteNoise
from aps_core.imaging import images, noise
from aps_core.imaging.images import Picture
from aps_core.tasks import Inputs, PictureResult, RestoreSpec, run
from tests.engines import image_engine

PHOTOS = Path(__file__).parents[2] / "examples/photos"
ROWS, COLUMNS, BLOCK = 3, 3, 4
"""Tokens of a toy picture, and pixels of a token's side."""
GAUSSIAN = FAMILIES["gaussian"]
SIGMA = 1.5


class World:
    """All 512 pictures of 9 black or white tokens, of which equal neighbours are likelier."""

    def __init__(self, width: float, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        tokens_SL = 2.0 * torch.cartesian_prod(*[torch.arange(2)] * (ROWS * COLUMNS)) - 1
        grid_SHW = tokens_SL.unflatten(1, (ROWS, COLUMNS))
        down_S = (grid_SHW[:, 1:] * grid_SHW[:, :-1]).sum((1, 2))
        right_S = (grid_SHW[:, :, 1:] * grid_SHW[:, :, :-1]).sum((1, 2))
        self.p_S = (0.3 * (down_S + right_S)).softmax(0)
        blocks_SHW = grid_SHW.repeat_interleave(BLOCK, 1).repeat_interleave(BLOCK, 2)
        self.x_SCHW = blocks_SHW[:, None]
        true = torch.multinomial(self.p_S, 1, generator=generator)
        clean = GAUSSIAN.blur((width,)).bind((1, ROWS * BLOCK, COLUMNS * BLOCK))(self.x_SCHW[true])
        y_CHW = clean[0] + SIGMA * torch.randn(clean[0].shape, generator=generator)
        self.likelihood = WhiteNoise(y_CHW, SIGMA)
        self.generator = generator

    def posterior(self, widths):
        """p(width | y) of every width, equally likely before, (N,)."""
        blurs = [GAUSSIAN.blur((width,)) for width in widths]
        loglik_NS = self.likelihood(blurs, self.x_SCHW)
        return (self.p_S.log() + loglik_NS).logsumexp(1).softmax(0)

    def posterior_of_pictures(self, blur):
        """p(x | y, blur), (S,)."""
        return (self.p_S.log() + self.likelihood([blur], self.x_SCHW)[0]).softmax(0)

    def draw(self, blur):
        """Exact posterior samples under a blur."""
        posterior_S = self.posterior_of_pictures(blur)
        return self.x_SCHW[torch.multinomial(posterior_S, 256, True, generator=self.generator)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("start", [0.7, 2.2])
def test_em_finds_the_width_of_the_exact_posterior(seed, start):
    world = World(1.2, seed)
    widths = torch.linspace(0.3, 2.4, 43)
    posterior_N = world.posterior(widths.tolist())
    assert posterior_N.max() > 5 * posterior_N.min(), "the measurement tells the width"
    found = expectation_maximisation(
        GAUSSIAN, (start,), world.draw, world.likelihood, side=ROWS * BLOCK, iterations=10
    )
    pictures_S = world.posterior_of_pictures(GAUSSIAN.blur(found.parameters))
    assert pictures_S.max() < 0.98, "several pictures are likely"
    mode = float(widths[posterior_N.argmax()])
    assert found.parameters[0] == pytest.approx(mode, abs=0.06)
    assert found.converged


@pytest.fixture(scope="module")
def engine():
    return image_engine("embedded")


def blurred(family, parameters, name="castle", side=96, sigma=0.02):
    """A photograph's part and its blurred, noisy upload."""
    x_CHW = images.to_tensor(images.open_image((PHOTOS / f"{name}.png").read_bytes()))
    x_CHW = x_CHW[:, 90 : 90 + side, 90 : 90 + side].contiguous()
    y_CHW = family.blur(parameters).bind(tuple(x_CHW.shape))(x_CHW[None])[0]
    return x_CHW, noise.add_noise(y_CHW, sigma, torch.Generator().manual_seed(0))


def test_the_detail_that_samples_lack_tells_a_blur_from_a_wrong_one(engine):
    """Samples drawn under a wrong blur explain the measurement; only their missing detail tells."""
    family, true = FAMILIES["defocus"], (3.0,)
    _, y_CHW = blurred(family, true)
    wrong = family.scaled(true, 1.35)
    draw = photograph.PosteriorSamples(
        engine=engine, y_CHW=y_CHW, sigma=0.02, effort=Effort(chains=2, iterations=1), seed=0
    )
    x_BCHW = draw(family.blur(wrong))
    found, plain = (
        expectation_maximisation(
            family, wrong, lambda _: x_BCHW, likelihood, side=80, iterations=1
        ).parameters
        for likelihood in (UnseenDetail(y_CHW, 0.02, margin=8), WhiteNoise(y_CHW, 0.02))
    )
    assert family.distance(found, true) < 0.1
    assert family.distance(plain, true) > 0.15


@pytest.mark.parametrize(
    ("kind", "true", "guess"),
    [
        ("gaussian", (1.6,), (2.2,)),
        ("defocus", (3.0,), (2.2,)),
        ("motion", (9.0, 30.0), (12.0, 45.0)),
    ],
)
def test_the_spectrum_corrects_a_wrong_guess(kind, true, guess):
    family = FAMILIES[kind]
    image = images.to_pil(blurred(family, true, side=128)[1])
    found = photograph.blur_of(image, family, guess, None, Effort(chains=2, iterations=3))
    assert family.distance(guess, true) > 0.25
    assert family.distance(found.parameters, true) < family.distance(guess, true) / 2, found
    assert found.converged


def test_directions_near_the_horizontal_are_valid():
    motion = FAMILIES["motion"]
    assert motion.named((9.0, 179.9999)) == {"length": 9.0, "angle": 0.0}
    for angle in (0.0, 1e-15, -1e-15 % 180, 179.997):
        for candidate in motion.around((9.0, angle), 0.35, 80):
            assert motion.distance(candidate, (9.0, 0.0)) < 0.4
            assert motion.blur(candidate).type == motion.operator, "a valid direction"


def restored(upload, engine, **hooks):
    spec = RestoreSpec.model_validate(
        {
            "operator": {"type": "blind_blur", "method": "em", "chains": 2, "iterations": 2},
            "sampler": {
                "type": "carried_evidence",
                "steps": 1,
                "inner_steps": 1,
                "start": 0,
                "correction": 0,
            },
        }
    )
    result = run(spec, Inputs(upload), engine, **hooks)
    assert isinstance(result, PictureResult)
    return result


@pytest.fixture(scope="module")
def upload():
    return Picture(images.to_pil(blurred(GAUSSIAN, (2.0,), "chelsea", side=64)[1]))


def test_a_job_estimates_the_blur_and_tells_how(engine, upload):
    saved, watched = [], []
    result = restored(
        upload,
        engine,
        on_step=lambda step: saved.append(step.checkpoint()),
        on_inner=lambda info: watched.append((info.step, info.iteration / info.inner_steps)),
    )
    found = result.found
    assert found is not None
    assert found.search is not None
    assert len(found.search.path) == 3
    assert len(found.search.chains) == 2
    operator = found.operator
    assert operator.type == "gaussian_blur"
    assert operator.sigma == pytest.approx(2.0, abs=0.5)
    assert operator.words() in result.notes[0]
    shares = [share for step, share in watched if step == 1]
    assert len([share for share in shares if share < 1]) > 4, "the search reports its progress"
    resumed = restored(upload, engine, resume=saved[0])
    assert resumed.found == found
    assert torch.equal(resumed.codes_BL, result.codes_BL)


def test_it_can_be_canceled_during_the_search(engine, upload):
    with pytest.raises(SamplingCancelled):
        restored(upload, engine, on_inner=lambda _: False)


def test_without_convergence_the_diagnosis_is_used_and_that_is_said(engine, upload, monkeypatch):
    restless = Estimate(
        parameters=(0.5,),
        chains=[(0.5,), (4.0,)],
        path=[(2.0,), (4.0,), (0.5,)],
        deviation=1.5,
        converged=False,
    )
    monkeypatch.setattr(photograph, "blur_of", lambda *_, **__: restless)
    result = restored(upload, engine)
    assert result.found is not None
    assert result.found.operator.sigma == pytest.approx(2.1, abs=0.2)
    assert result.found.confidence == "not sure"
    assert "did not converge, so the diagnosis is used" in result.notes[0]


def test_a_picture_without_blur_needs_a_kind(engine):
    sharp = Picture(images.to_pil(blurred(GAUSSIAN, (0.01,), side=64, sigma=0.0)[0]))
    with pytest.raises(NothingToRestore, match="name its 'kind'"):
        restored(sharp, engine)


def test_the_least_blur_that_a_family_names_is_a_blur():
    """On tiny pictures, estimates reach it."""
    for family in FAMILIES.values():
        assert family.blur((0.0, 0.0)[: len(family.names)]).support is not None
