"""The shipped weights: figures of the model card, and claims of the paper on APS."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch

from aps_core import Measurement, evaluation, restore
from aps_core.checkpoints.files import EMBEDDED
from aps_core.engines.engine import Engine
from aps_core.errors import InvalidSpec
from aps_core.evaluation.metrics import psnr
from aps_core.imaging import images
from aps_core.imaging.resampling import resize
from aps_core.operators.compose import Compose
from aps_core.priors.embedded.image import EmbeddedPrior
from aps_core.runtime.process import reproducible
from aps_core.samplers.aps import APSConfig
from aps_core.tasks import Inputs, PictureResult, RestoreSpec, run
from aps_core.tasks.estimate import check_size, estimate
from aps_core.verdict.fit import round_trip
from tests.engines import image_engine
from training.ship import LIMIT_BYTES

PHOTOS = Path(__file__).parents[2] / "examples" / "photos"


@pytest.fixture(scope="module")
def engine():
    return image_engine("embedded")


@pytest.fixture(scope="module")
def photos(engine):
    return dict(evaluation.photographs(PHOTOS, 128))


def test_weights_fit_the_limit():
    for name, limit in LIMIT_BYTES.items():
        size = sum(path.stat().st_size for path in (EMBEDDED / name).rglob("*.safetensors"))
        assert 0 < size < limit


def test_tokenizer_round_trip_and_codes(engine, photos):
    x = torch.stack(list(photos.values()))
    codes = torch.cat([engine.prior.tokenizer.encode(part) for part in x.split(6)])
    y = torch.cat([round_trip(engine.prior.tokenizer, truth) for truth in photos.values()])
    assert psnr(y, x).mean() > CEILING
    bits = engine.prior.tokenizer.codebook_KD[codes] > 0
    assert (bits.float().mean((0, 1)) - 0.5).abs().max() < 0.2
    assert len(codes.unique()) > 0.1 * 4096


CEILING = 24.8
"""dB on the 17 photographs at 128 pixels; the model card holds the measured value."""


def restored(engine, photos, task, method, name="coffee", **settings):
    setup = evaluation.Setup.recommended(engine, settings)
    case = evaluation.make_case(engine, setup, "native", task, name, photos[name], 0.05, 0)
    x = evaluation.run_method(engine, setup, case, evaluation.Variant(method), 0)[0]
    return float(psnr(x, photos[name][None])), float(
        psnr(evaluation.BASELINES["input"](case), photos[name][None])
    )


def test_restoring_a_jpeg_does_no_harm(engine, photos):
    """The rounding counts as noise; fitted exactly, it would be amplified."""
    truth = photos["coffee"]
    buffer = io.BytesIO()
    images.to_pil(truth).save(buffer, "JPEG", quality=30)
    before = images.to_tensor(images.open_image(buffer.getvalue()))
    operator = {"type": "jpeg", "quality": 30}
    after = restore(Measurement(before, operator), engine, preset="fast").pictures_BCHW
    assert psnr(after, truth[None]).item() > psnr(before[None], truth[None]).item()


def test_the_rounding_of_a_jpeg_counts_more_than_noise(photos):
    """Its errors are alike over a block, and the inverse of a blur amplifies them."""
    truth = photos["coffee"]
    stages = [{"type": "gaussian_blur", "sigma": 1.5}, {"type": "jpeg", "quality": 70}]
    operator = Compose.model_validate({"stages": stages})
    before = operator.bind(truth.shape)(truth[None])[0].clamp(-1, 1)
    measurement = Measurement(before, operator, sigma=0.01)
    after = restore(measurement, "embedded_photographs").pictures_BCHW
    # 3.2 dB; 2.2 with a weight of 1
    assert psnr(after, truth[None]).item() > psnr(before[None], truth[None]).item() + 2.7


def test_the_evaluation_takes_the_rounding_of_a_jpeg_as_noise_too(engine, photos):
    truth, setup = photos["coffee"], evaluation.Setup.recommended(engine)
    case = evaluation.make_case(engine, setup, "native", "jpeg", "coffee", truth, 0.005, 0)
    before, after = (evaluation.BASELINES[name](case) for name in ("input", "tv"))
    assert psnr(after, truth[None]) > psnr(before, truth[None]) + 0.5


@pytest.mark.slow
def test_missing_pixels_are_filled_better_than_by_the_smoothest_surface(engine, photos):
    truth, setup = photos["castle"], evaluation.Setup.recommended(engine)  # level without curvature
    case = evaluation.make_case(engine, setup, "native", "inpainting70", "castle", truth, 0.05, 0)
    variant = evaluation.Variant("carried_evidence")
    ours = evaluation.run_method(engine, setup, case, variant, 0)[0]
    filled = evaluation.BASELINES["biharmonic"](case)
    assert psnr(ours, truth[None]) > psnr(filled, truth[None]) + 0.2


@pytest.mark.slow
def test_measurement_beats_the_prior_alone(engine, photos):
    guided, _ = restored(engine, photos, "inpainting70", "aps", steps=6)
    alone, _ = restored(engine, photos, "inpainting70", "prior_only", steps=6)
    assert guided > alone + 6


@pytest.mark.slow
def test_hdr_beats_the_inverse_of_its_scale(engine, photos):
    guided, clipped = restored(engine, photos, "hdr", "carried_evidence", name="chelsea")
    assert guided > clipped


def spec(**changes):
    return RestoreSpec(
        operator={"type": "denoise"},
        **{"sampler": {"steps": 3, "inner_steps": 4}, "sigma": 0.05, **changes},
    )


@pytest.fixture(scope="module")
def inputs():
    return Inputs(
        images.open_image(
            images.encode_png(
                resize(
                    images.to_tensor(images.open_image((PHOTOS / "rocket.png").read_bytes())),
                    (40, 52),
                )
            )
        )
    )


def test_checkpoints_resume_bit_for_bit_and_incompatible_ones_are_reported(engine, inputs):
    checkpoints = []
    several = spec(num_samples=2)
    whole: Any = run(several, inputs, engine, lambda p: checkpoints.append(p.checkpoint()))
    resumed: Any = run(several, inputs, engine, resume=checkpoints[1])
    assert torch.equal(resumed.pictures_BCHW, whole.pictures_BCHW)
    assert (resumed.resumed_from_step, len(resumed.inner_steps)) == (2, 1)
    other = run(spec(num_samples=2, seed=1), inputs, engine, resume=checkpoints[1])
    assert other.resumed_from_step is None
    assert any("restarted" in note for note in other.notes)
    with reproducible(threads=2):  # a worker with more cores
        moved = run(several, inputs, engine, resume=checkpoints[1])
    assert moved.resumed_from_step is None
    assert any("number of threads; the job restarted" in note for note in moved.notes)
    damaged: Any = run(several, inputs, engine, resume=checkpoints[1][:-50])
    assert torch.equal(damaged.pictures_BCHW, whole.pictures_BCHW)
    assert damaged.resumed_from_step is None


def test_the_sidecar_is_complete(engine, inputs):
    result = run(spec(sigma="auto"), inputs, engine)
    sidecar = result.sidecar()
    assert 0 < sidecar["spec"]["sigma"] < 0.2
    assert (
        sidecar["spec"]["sampler"]["anchor_score"]
        == EmbeddedPrior.recommended["anchor_score"]
        != APSConfig().anchor_score
    )
    assert sidecar["size"] == {"width": 52, "height": 40}
    assert "not evidence" in sidecar["notice"]
    assert RestoreSpec.model_validate(sidecar["spec"]) == result.spec


def test_recommendations_only_fill_unset_fields():
    def inner_steps(**sampler):
        settings = RestoreSpec(operator={"type": "hdr"}, sampler=sampler).settings()
        assert isinstance(settings, APSConfig)
        return settings.inner_steps

    assert inner_steps() == EmbeddedPrior.recommended["inner_steps"] != APSConfig().inner_steps
    assert inner_steps(inner_steps=100) == 100


def test_estimate_grows_with_the_work():
    one = estimate(spec(), (64, 64), 1e-4)
    assert (one.output, one.tokens) == ((64, 64), 256)
    assert estimate(spec(num_samples=4), (64, 64), 1e-4).seconds == pytest.approx(4 * one.seconds)
    assert check_size(spec(working_size=512), (4000, 3000), 512 * 512, 1e-4).output == (512, 384)


def test_masks_are_checked_before_computation():
    masked = RestoreSpec(operator={"type": "inpainting"})
    with pytest.raises(InvalidSpec, match="needs a mask"):
        masked.check((8, 8), None, has_alpha=False)
    with pytest.raises(InvalidSpec, match="must have the same size"):
        masked.check((8, 8), (8, 9), has_alpha=False)
    masked.check((8, 8), None, has_alpha=True)
    with pytest.raises(InvalidSpec, match="takes no mask"):
        spec().check((8, 8), (8, 8), has_alpha=False)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_restores_like_the_cpu(engine, inputs):
    cuda = Engine.load("embedded", "cuda")
    there, here = (run(spec(), inputs, each) for each in (cuda, engine))
    assert isinstance(there, PictureResult)
    assert isinstance(here, PictureResult)
    assert psnr(there.pictures_BCHW.cpu(), here.pictures_BCHW).item() > 20
