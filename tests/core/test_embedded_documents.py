"""The embedded documents prior: what it knows, and when it is used."""

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from aps_cli.main import main
from aps_core.errors import InvalidSpec
from aps_core.evaluation.cases import Setup, make_case
from aps_core.evaluation.metrics import psnr
from aps_core.imaging.images import Picture, open_image, to_pil, to_tensor
from aps_core.imaging.total_variation import total_variation_estimate
from aps_core.numerics.likelihood import MeasurementLikelihood
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators.base import Bound
from aps_core.priors import specialised_in
from aps_core.priors.embedded.documents import EmbeddedDocumentsPrior
from aps_core.samplers.plug_and_play import PlugAndPlay
from aps_core.sampling import driver
from aps_core.tasks import Inputs, RestoreSpec, run
from aps_core.types import MASK
from tests.engines import image_engine

PAGES = Path(__file__).parents[2] / "examples" / "documents"


def middles(every):
    """Name and middle 128 pixels of every Nth page."""
    for path in sorted(PAGES.glob("*.png"))[::every]:
        x = to_tensor(open_image(path.read_bytes()))
        top, left = ((side - 128) // 2 for side in x.shape[1:])
        yield path.stem, x[:, top : top + 128, left : left + 128]


@pytest.fixture(scope="module")
def engine():
    return image_engine("embedded_documents")


def test_the_prior_knows_paper(engine):
    """Beside blank paper it expects blank paper."""
    blank = engine.prior.tokenizer.encode(torch.ones(1, 3, 64, 64))
    z_BL = blank.clone()
    z_BL[0, 2080:2100] = MASK
    logits = engine.prior.logits(
        z_BL, grid=(64, 64), mask_fraction=0.02, condition="", guidance_scale=0.0
    )
    hidden = logits[0, 2080:2100].log_softmax(-1)
    assert hidden.gather(1, blank[0, 2080:2100, None]).mean() > -1


def test_a_restoration_is_better_than_its_first_estimate(engine):
    """Of pictures behind a Gaussian blur, in two rounds without a final correction."""
    setup, gains = Setup.recommended(engine), []
    sampler = PlugAndPlay(steps=2)
    for label, x in middles(6):
        case = make_case(engine, setup, "native", "gaussian_blur", label, x, 0.05, 0)
        assert isinstance(case.objective, MeasurementLikelihood)
        first = total_variation_estimate(case.objective, torch.zeros(1, 3, 128, 128))
        result = driver.sample(
            engine.prior, case.objective, sampler, grid=(128, 128), generator=torch.Generator()
        )
        gains.append(psnr(result.x_BCHW, x[None]) - psnr(first, x[None]))
    assert torch.cat(gains).mean() > 1


@pytest.mark.parametrize("side", [3, 24])
def test_what_is_missing_of_empty_paper_is_paper(engine, side):
    """Small and large holes in a page without any noise; it had become grey, or dark."""
    _, x = next(middles(1))
    grey = 0.84 * torch.ones(1, 3, 128, 128)
    grey[..., 64:, :] = 0.84 * x[..., 64:, :]
    known = torch.ones(128, 128)
    known[20 : 20 + side, 50 : 50 + side] = 0
    objective = MeasurementObjective(
        Bound(lambda x: x * known, weight=known), grey * known, 0.002, "l2"
    )
    sampler = PlugAndPlay(**engine.spec.recommended_for(PlugAndPlay))
    result = driver.sample(
        engine.prior, objective, sampler, grid=(128, 128), generator=torch.Generator()
    )
    assert (result.x_BCHW - grey)[..., known == 0].abs().max() < 0.05
    assert (result.x_BCHW - grey)[..., known == 1].abs().max() < 0.01
    assert float(result.misfit_B) < 0.002


def test_screens_with_missing_pixels_need_no_noise(engine):
    """Without noise they are restored as well as with some; it had been 5 and 15 dB worse."""
    setup, differences = Setup.recommended(engine), []
    sampler = PlugAndPlay(**engine.spec.recommended_for(PlugAndPlay))
    for label, x in list(middles(2))[10::4]:
        exact, noisy = (
            driver.sample(
                engine.prior,
                make_case(engine, setup, "native", "inpainting50", label, x, sigma, 0).objective,
                sampler,
                grid=(128, 128),
                generator=torch.Generator(),
            )
            for sigma in (0.0, 0.05)
        )
        differences.append(psnr(exact.x_BCHW, x[None]) - psnr(noisy.x_BCHW, x[None]))
    assert torch.cat(differences).min() > -1.5


def test_plain_paper_has_no_edge_at_its_border(engine):
    """Where rounds move the picture, and its last squares of pixels are not full."""
    setup, paper = Setup.recommended(engine), torch.full((3, 64, 64), 0.9)
    paper[:, 28:32, 10:50] = -0.9
    case = make_case(engine, setup, "native", "motion_blur", "paper", paper, 0.05, 0)
    sampler = PlugAndPlay(**engine.spec.recommended_for(PlugAndPlay))
    result = driver.sample(
        engine.prior, case.objective, sampler, grid=(64, 64), generator=torch.Generator()
    )
    off_HW = (result.x_BCHW[0] - paper).abs().mean(0)
    for border_P in (off_HW[-6:], off_HW[:6], off_HW[:, -6:], off_HW[:, :6]):
        assert border_P.mean() < 0.03


def test_a_sampler_that_does_not_suit_the_prior_is_noted(engine):
    y = next(middles(10))[1][:, :32, :32]
    quick = {"steps": 1, "inner_steps": 1}
    for sampler, noted in (("aps", True), ("plug_and_play", False)):
        spec = RestoreSpec.model_validate(
            {
                "prior": "embedded_documents",
                "operator": {"type": "denoise"},
                "sampler": {"type": sampler, **quick},
            }
        )
        notes = run(spec, Inputs(Picture(to_pil(y))), engine).notes
        assert any("was trained for 'plug_and_play'" in note for note in notes) == noted


def test_missing_pixels_are_first_filled_along_slopes(engine):
    """Total variation fills them with steps, which the prior does not mend."""
    setup, gains = Setup.recommended(engine), []
    for label, x in middles(10):
        case = make_case(engine, setup, "native", "inpainting50", label, x, 0.05, 0)
        assert isinstance(case.objective, MeasurementLikelihood)
        steps = total_variation_estimate(case.objective, torch.zeros(1, 3, 128, 128))
        result = driver.sample(
            engine.prior,
            case.objective,
            PlugAndPlay(steps=1),
            grid=(128, 128),
            generator=torch.Generator(),
        )
        gains.append(psnr(result.x_BCHW, x[None]) - psnr(steps, x[None]))
    assert torch.cat(gains).mean() > 0.5


def test_it_takes_no_prompt():
    prior = EmbeddedDocumentsPrior()
    with pytest.raises(InvalidSpec, match=f"'{prior.type}' takes no prompt"):
        prior.check_prompt("a page of text")


def test_priors_are_chosen_by_what_they_are_specialised_in():
    assert specialised_in("documents", {"jpeg"}) == "embedded_documents"
    assert specialised_in("documents", set()) == "embedded_documents"
    assert specialised_in("documents", {"jpeg"}, ["embedded", "embedded_text"]) is None
    assert specialised_in("photographs", {"hdr"}) == "embedded_photographs"
    assert specialised_in("photographs", {"denoise"}) == "embedded_denoiser"
    assert specialised_in("photographs", {"jpeg"}) == "embedded_denoiser"
    assert specialised_in("photographs", {"inpainting"}) is None
    assert specialised_in("photographs", {"hdr"}, ["embedded", "vq_diffusion"]) is None
    assert specialised_in("photographs", {"jpeg", "gaussian_blur"}) == "embedded_denoiser"
    assert specialised_in("photographs", {"jpeg", "hdr"}) == "embedded_photographs"
    assert specialised_in("photographs", {"jpeg", "colorize"}) is None
    assert specialised_in("photographs", set()) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["documents/page-karla.png"], True),
        (["documents/page-karla.png", "--prior", "embedded"], False),
        (["photos/coffee.png"], False),
    ],
)
def test_the_command_restores_documents_with_it_and_says_so(tmp_path, words, said):
    quick = ["--operator", "denoise", "--preset", "fast", "--working-size", "64"]
    done = CliRunner().invoke(
        main,
        ["restore", str(PAGES.parent / words[0]), *words[1:], *quick, "-o", f"{tmp_path}/x.png"],
    )
    assert done.exit_code == 0, done.output
    assert ("prior 'embedded_documents' was trained on pages" in done.stderr) is said
    sidecar = (tmp_path / "x.json").read_text()
    assert ('"embedded_documents"' in sidecar) is said
