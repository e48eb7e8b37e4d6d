"""Large pictures in overlapping tiles: geometry, operators, seams, memory, resuming."""

import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from aps_core.engines.engine import ImageEngine
from aps_core.errors import ImageTooLarge, InvalidSpec, JobTooLong, SamplingCancelled
from aps_core.evaluation.metrics import psnr
from aps_core.imaging import images
from aps_core.imaging.tiling import Tiling
from aps_core.operators import OperatorSpec
from aps_core.priors.embedded.image import EmbeddedPrior
from aps_core.tasks import Inputs, PictureResult, RestoreSpec, run
from aps_core.tasks.estimate import Capacity, check_seconds, check_size, estimate
from tests.core.test_operators import ALL, picture, spec_of
from tests.core.toys import FlatPrior
from tests.engines import image_engine

ROOT = Path(__file__).parents[2]
BYTES_PER_PIXEL = 80
LOCAL = {"type": "inpainting", "mask": "upload"}
QUICK = {"type": "aps", "steps": 2, "inner_steps": 2}


@pytest.mark.parametrize("length", [88, 89, 96, 150, 160, 161, 333, 1000, 4001])
@pytest.mark.parametrize(
    ("margin", "fade", "grid"), [(8, 16, 1), (0, 16, 1), (12, 8, 4), (8, 8, 8)]
)
def test_tiles_cover_every_pixel_with_weights_that_sum_to_one(length, margin, fade, grid):
    tiling = Tiling(width=length, height=88, tile=88, margin=margin, fade=fade, grid=grid)
    total, spans = torch.zeros(length, dtype=torch.float64), tiling.columns
    for span in spans:
        assert span.start % grid == 0
        assert span.stop - span.start <= 88
        assert span.stop % grid == 0 or span.stop == length
        weights = torch.tensor(span.weights(fade), dtype=torch.float64)
        total[span.start : span.stop] += weights
        if span.rise is not None:
            assert not weights[:margin].any(), "the margin is cut off"
        if span.fall is not None and margin:
            assert not weights[-margin:].any(), "the margin is cut off"
    torch.testing.assert_close(total, torch.ones_like(total))
    for one, two in itertools.pairwise(spans):
        assert one.stop - two.start >= 2 * margin + fade
    assert len(tiling.rows) == 1
    assert tiling.tokens(4) == sum(-(-(s.stop - s.start) // 4) for s in spans) * 22


@pytest.mark.parametrize("name", ALL)
def test_inside_its_margin_a_part_is_measured_as_in_the_whole_picture(name):
    """What an operator says about its support is true."""
    spec = OperatorSpec.named(name).model_validate(LOCAL) if name == "inpainting" else spec_of(name)
    support = spec.support
    if support is None:
        assert name in ("saturating_blur", "nonlinear_blur")
        return
    shape, x = (3, 128, 160), picture(shape=(3, 128, 160))
    known = torch.ones(128, 160)
    whole = spec.bind(shape, mask_HW=known)(x)
    scale = 128 // whole.shape[2]
    assert support.grid % scale == 0
    first = 3 * support.grid
    side = (96 - first) // support.grid * support.grid
    last = first + side
    part = spec.bind((3, side, side), mask_HW=known[:side, :side])(x[..., first:last, first:last])
    margin = support.margin // scale
    inner = slice(margin, side // scale - margin)
    there = whole[..., first // scale : last // scale, first // scale : last // scale]
    assert inner.stop - inner.start >= 8, "the test compares something"
    torch.testing.assert_close(part[..., inner, inner], there[..., inner, inner], atol=2e-5, rtol=0)


def test_the_support_of_a_chain_covers_its_stages():
    stages = [
        {"type": "gaussian_blur", "sigma": 1.0},
        {"type": "super_resolution", "factor": 2},
        {"type": "jpeg", "quality": 30},
        {"type": "gaussian_blur", "sigma": 0.8},
    ]
    spec = OperatorSpec.named("compose").model_validate({"type": "compose", "stages": stages})
    support = spec.support
    assert support is not None
    x = picture(shape=(3, 192, 192))
    whole = spec.bind((3, 192, 192))(x)
    part = spec.bind((3, 128, 128))(x[..., 32:160, 32:160])
    margin = support.margin // 2
    inner = slice(margin, 64 - margin)
    torch.testing.assert_close(
        part[..., inner, inner], whole[..., 16:80, 16:80][..., inner, inner], atol=2e-5, rtol=0
    )


@pytest.fixture(scope="module")
def engine() -> ImageEngine:
    return ImageEngine(EmbeddedPrior(), FlatPrior(), torch.device("cpu"))


def upload(x_CHW: torch.Tensor) -> Inputs:
    return Inputs(images.Picture(images.to_pil(x_CHW)))


def restored(engine: ImageEngine, inputs: Inputs, *arguments: Any, **fields: Any) -> PictureResult:
    usual = {"operator": {"type": "denoise"}, "sigma": 0.1, "sampler": QUICK, "tile": 96}
    fields = {**usual, **fields}
    result = run(RestoreSpec.model_validate(fields), inputs, engine, *arguments)
    assert isinstance(result, PictureResult)
    return result


def test_a_run_resumed_at_any_tile_gives_the_same_picture(engine):
    inputs = upload(picture(shape=(3, 130, 210))[0])
    checkpoints: list[bytes] = []
    events: list[dict[str, Any]] = []

    def keep(progress: Any) -> None:
        checkpoints.append(progress.checkpoint())
        events.append(progress.event())
        assert progress.preview().startswith(b"\xff\xd8")

    fields: dict[str, Any] = {"num_samples": 2, "operator": {"type": "gaussian_blur", "sigma": 1.0}}
    whole = restored(engine, inputs, keep, **fields)
    assert [event["step"] for event in events] == [1, 2, 3, 4, 5, 6]
    assert {event["total"] for event in events} == {6}
    for number in (1, 4, 6):
        again = restored(engine, inputs, None, checkpoints[number - 1], **fields)
        assert again.resumed_from_step == number
        assert torch.equal(again.pictures_BCHW, whole.pictures_BCHW)
        assert torch.equal(again.codes_BL, whole.codes_BL)
        assert again.misfit_B == whole.misfit_B
        assert again.fit == whole.fit
        assert again.sidecar()["samples_sha256"] == whole.sidecar()["samples_sha256"]
        assert len(again.inner_steps) == 6 - number
    assert not torch.equal(whole.pictures_BCHW[0], whole.pictures_BCHW[1])


def test_a_resumed_run_has_the_pictures_of_tiles_that_are_more_than_their_tokens():
    """Those of plug and play are between levels, so their tokens do not say all."""
    pages, checkpoints = image_engine("embedded_documents"), list[bytes]()
    inputs = upload(picture(shape=(3, 64, 160))[0])
    sampler = {"type": "plug_and_play", "steps": 2, "inner_steps": 2, "first_steps": 5}
    chosen: dict[str, Any] = {"prior": "embedded_documents", "sampler": sampler}
    fields = {**chosen, "tile": 72, "num_samples": 2}
    whole = restored(pages, inputs, lambda now: checkpoints.append(now.checkpoint()), **fields)
    for number in (1, 3):
        again = restored(pages, inputs, None, checkpoints[number - 1], **fields)
        assert again.resumed_from_step == number
        assert torch.equal(again.pictures_BCHW, whole.pictures_BCHW)
        assert torch.equal(again.spread_HW(), whole.spread_HW())
        assert again.misfit_B == whole.misfit_B
        assert again.noise_floor == whole.noise_floor
        assert len(again.inner_steps) == len(checkpoints) - number


def test_a_hook_cancels_between_tiles_and_inside_one(engine):
    inputs = upload(picture(shape=(3, 96, 210))[0])
    with pytest.raises(SamplingCancelled, match=r"after tile 2 of 3"):
        restored(engine, inputs, lambda progress: progress.step < 2)
    seen: list[Any] = []

    def stop(info: Any) -> bool:
        seen.append(info)
        return info.step < 2

    with pytest.raises(SamplingCancelled):
        restored(engine, inputs, None, None, stop)
    assert {(info.step, info.total) for info in seen} == {(1, 3), (2, 3)}
    assert all(0 < info.iteration <= info.inner_steps for info in seen)


def test_a_picture_that_fits_one_tile_is_restored_as_a_whole(engine):
    inputs = upload(picture(shape=(3, 64, 96))[0])
    tiled, whole = restored(engine, inputs), restored(engine, inputs, tile=None)
    assert torch.equal(tiled.pictures_BCHW, whole.pictures_BCHW)
    assert not tiled.notes


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        ({"type": "saturating_blur", "sigma": 1.0}, "differs from place to place"),
        ({"type": "inpainting", "mask": "box"}, "differs from place to place"),
        ({"type": "gaussian_blur", "sigma": 9.0}, "set 'tile' to 123 or more"),
    ],
)
def test_operators_that_cannot_be_cut_are_refused_before_any_work(engine, operator, words):
    inputs = upload(picture(shape=(3, 96, 210))[0])
    with pytest.raises(InvalidSpec, match=words):
        restored(engine, inputs, operator=operator)


def test_a_tile_without_a_known_pixel_is_refused(engine):
    known = images.Picture(images.to_pil(torch.ones(3, 96, 310)))
    known.image.paste((0, 0, 0), (110, 0, 310, 96))
    inputs = Inputs(upload(picture(shape=(3, 96, 310))[0]).image, mask=known)
    with pytest.raises(InvalidSpec, match="leaves no pixel known in the tile at column 1"):
        restored(engine, inputs, operator=LOCAL)


def test_a_mask_is_cut_with_its_picture(engine):
    x = torch.full((3, 96, 210), -0.7)
    x[:, 40:44, 20:200] = 0.7
    known = images.Picture(images.to_pil(torch.ones(3, 96, 210)))
    known.image.paste((0, 0, 0), (20, 40, 200, 44))
    inputs = Inputs(upload(x).image, mask=known)
    sampler = {"type": "aps", "steps": 4, "inner_steps": 10}
    result = restored(engine, inputs, operator=LOCAL, sampler=sampler)
    assert float((result.pictures_BCHW.float() + 0.7).abs().mean()) < 0.1, "the scratch is gone"


def test_the_estimate_counts_all_tiles_and_the_memory_of_one():
    spec = RestoreSpec.model_validate({"operator": {"type": "denoise"}, "tile": 256})
    whole = estimate(spec.model_copy(update={"tile": None}), (4000, 3000), 1e-6)
    tiled = estimate(spec, (4000, 3000), 1e-6)
    assert (tiled.output, tiled.sampled) == ((4000, 3000), (256, 256))
    assert 1.2 < tiled.tokens / whole.tokens < 1.5
    tile = estimate(spec.model_copy(update={"tile": None}), (256, 256), 1e-6)
    assert tiled.seconds / tiled.tokens == pytest.approx(tile.seconds / tile.tokens)
    assert whole.seconds > 2 * tiled.seconds, "attention grows with the square"
    capacity = Capacity(job_bytes=64 * 64 * 100, token_bytes=100)
    assert check_size(spec, (4000, 3000), 512 * 512, 1e-6, capacity) == tiled
    with pytest.raises(ImageTooLarge, match=r"set 'tile' to 256 to restore it .* in 252 tiles"):
        check_size(spec.model_copy(update={"tile": None}), (4000, 3000), 512 * 512, 1e-6)
    with pytest.raises(ImageTooLarge, match="restored in tiles"):
        check_size(spec.model_copy(update={"num_samples": 6}), (4000, 3000), 512 * 512, 1e-6)


def test_a_job_of_too_many_tiles_names_a_working_size_that_fits():
    spec = RestoreSpec.model_validate({"operator": {"type": "denoise"}, "tile": 256})
    cost = estimate(spec, (4000, 3000), 1e-3)
    with pytest.raises(JobTooLong, match="working_size") as refused:
        check_seconds(spec, (4000, 3000), cost, 1800, 1e-3)
    found = re.search(r"working_size (\d+)", str(refused.value))
    assert found is not None
    for size, fits in ((int(found[1]), True), (int(found[1]) + 1, False)):
        smaller = spec.model_copy(update={"working_size": size})
        assert (estimate(smaller, (4000, 3000), 1e-3).seconds <= 1800) == fits


def test_the_noise_of_a_large_picture_is_estimated_from_some_of_its_tiles(engine):
    clean = picture(shape=(3, 400, 500))[0]
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    result = restored(engine, upload(clean + 0.08 * noise), sigma="auto")
    assert isinstance(result.spec, RestoreSpec)
    assert result.spec.sigma == pytest.approx(0.08, rel=0.1)


MEMORY = """
import resource, sys, torch
from PIL import Image
from aps_core.imaging import images
from aps_core.priors.embedded.image import EmbeddedPrior
from aps_core.engines.engine import ImageEngine
from aps_core.tasks import Inputs, RestoreSpec, run
from tests.core.toys import FlatPrior

engine = ImageEngine(EmbeddedPrior(), FlatPrior(), torch.device("cpu"))
sampler = {"type": "aps", "steps": 1, "inner_steps": 1}

def restore(width, height):
    picture = images.Picture(Image.new("RGB", (width, height), (90, 120, 150)))
    spec = RestoreSpec(operator={"type": "denoise"}, tile=128, sampler=sampler)
    run(spec, Inputs(picture), engine, lambda progress: progress.preview()).files()

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

restore(200, 200)
before = peak()
restore(2000, 1500)
print((peak() - before) / (2000 * 1500))
"""


def test_memory_grows_by_few_bytes_a_pixel():
    """The whole picture as float32 alone takes 12 bytes a pixel; sampling it takes hundreds."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < BYTES_PER_PIXEL, done.stdout


def seam(x_CHW: torch.Tensor, tiling: Tiling) -> float:
    """Energy of the horizontal gradient in the crossfades, relative to elsewhere."""
    inside = torch.zeros(tiling.width, dtype=torch.bool)
    for span in tiling.columns:
        if span.rise is not None:
            inside[span.rise : span.rise + tiling.fade] = True
    energy = x_CHW.diff(dim=2).square().mean((0, 1))
    return float(energy[inside[1:]].mean() / energy[~inside[1:]].mean())


def test_tiles_leave_no_seams_in_a_smooth_gradient():
    """The error has no more edges in the crossfades than elsewhere, and is as large as without
    tiles.
    """
    size = (72, 200)
    across, down = torch.linspace(-0.7, 0.7, size[1]), torch.linspace(-0.5, 0.5, size[0])
    truth = torch.stack([across.expand(size), down[:, None].expand(size), 0 * across.expand(size)])
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
    spec = RestoreSpec.model_validate(
        {
            "operator": {"type": "gaussian_blur", "sigma": 1.5},
            "sigma": 0.05,
            "sampler": {"type": "carried_evidence", "steps": 4, "inner_steps": 3},
        }
    )
    blurred = spec.operator.bind((3, *size))(truth[None])[0]
    inputs, engine = upload(blurred + 0.05 * noise), image_engine("embedded")
    pictures = {}
    for tile in (None, 96):
        tiled = spec.model_copy(update={"tile": tile})
        result = run(tiled, inputs, engine)
        assert isinstance(result, PictureResult)
        pictures[tile] = result.pictures_BCHW[0].float()
    tiling = tiled.layout((size[1], size[0])).tiling
    assert tiling is not None
    assert seam(pictures[96] - truth, tiling) < 1.5
    tiled_db, whole_db = (psnr(pictures[tile][None], truth[None]).item() for tile in (96, None))
    assert tiled_db > whole_db - 0.3
