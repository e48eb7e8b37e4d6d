"""Properties of all registered operators, and comparison with original implementations."""

import io
import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import BaseModel, ValidationError

from aps_core.errors import InvalidSpec
from aps_core.evaluation.metrics import psnr
from aps_core.identify.kinds.unknown import UnknownOperator
from aps_core.imaging import images
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import OperatorSpec
from aps_core.operators.blur import reflecting_filter
from aps_core.operators.colorize import Colorize
from aps_core.operators.inpainting import Inpainting
from aps_core.operators.motion_blur import motion_kernel
from aps_core.registry import AnyOf

FIXTURES = Path(__file__).parents[1] / "fixtures"
SHAPE = (3, 32, 40)
SMALL: dict[str, dict[str, Any]] = {
    "gaussian_blur": {"sigma": 1.2},
    "motion_blur": {"kernel_size": 9},
    "kernel_blur": {"kernel": [[0, 1, 0, 0, 0], [1, 3, 2, 0, 0], [0, 0, 1, 1, 0.5]]},
    "inpainting": {"mask": "random", "fraction": 0.4},
    "compose": {
        "stages": [
            {"type": "gaussian_blur", "sigma": 0.8},
            {"type": "super_resolution", "factor": 2},
        ]
    },
}
"""Settings for small test pictures. Operators whose defaults work on them need no entry."""
ALL = sorted(
    name for name, cls in OperatorSpec.family.items() if not issubclass(cls, UnknownOperator)
)


def spec_of(name: str) -> OperatorSpec:
    return OperatorSpec.named(name).model_validate({"type": name, **SMALL.get(name, {})})


def picture(batch=1, shape=SHAPE, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(batch, shape[0], 5, 6, generator=generator, dtype=torch.float64)
    return (
        torch.nn.functional.interpolate(coarse, shape[1:], mode="bicubic").clamp(0, 1) * 1.8 - 0.9
    ).to(dtype)


@pytest.fixture(autouse=True)
def reduced_weights(monkeypatch):
    """Makes the reduced networks of the fixtures available to operators that need weights."""
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(FIXTURES))


@pytest.fixture(params=ALL)
def spec(request):
    return spec_of(request.param)


def test_image_shape_inverts_the_output_shape(spec):
    y = spec.bind(SHAPE)(picture())
    assert spec.image_shape(tuple(y.shape[1:])) == SHAPE


def test_batches_equal_a_loop_over_samples(spec):
    operator, x = spec.bind(SHAPE), picture(3)
    torch.testing.assert_close(
        operator(x), torch.cat([operator(one[None]) for one in x]), atol=1e-5, rtol=0
    )


def test_binding_is_deterministic(spec):
    first, second = spec.bind(SHAPE), spec.bind(SHAPE)
    assert torch.equal(first(picture()), second(picture()))
    assert all(torch.equal(first.state()[k], second.state()[k]) for k in first.state())


def test_different_seeds_draw_different_operators():
    for name in ("motion_blur", "inpainting"):
        one, two = (
            spec_of(name).model_copy(update={"seed": seed}).bind(SHAPE).state() for seed in (0, 1)
        )
        assert all(not torch.equal(one[k], two[k]) for k in one)


def test_json_round_trip(spec):
    class Holder(BaseModel):
        operator: Annotated[OperatorSpec, AnyOf(OperatorSpec)]

    held = Holder(operator=spec)
    assert Holder.model_validate_json(held.model_dump_json()).operator == spec
    assert (
        Holder.model_validate(json.loads(json.dumps(held.model_dump(mode="json")))).operator == spec
    )


def test_gradients_reach_the_picture(spec):
    x = picture(dtype=torch.float64).requires_grad_()
    spec.bind(SHAPE)(x).sum().backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad.abs().max() > 0


def test_output_dtype_is_that_of_the_input(spec):
    for dtype in (torch.float32, torch.float64):
        assert spec.bind(SHAPE)(picture(dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("name", [n for n in ALL if n != "jpeg"])  # jpeg rounds
def test_gradients_are_exact_where_nothing_clips(name):
    shape = (3, 16, 24)
    x = 0.4 * picture(shape=shape, dtype=torch.float64)  # hdr would clip beyond 0.5
    torch.autograd.gradcheck(spec_of(name).bind(shape), (x.requires_grad_(),), fast_mode=True)


@pytest.mark.parametrize("name", [n for n in ALL if spec_of(n).linear])
def test_linear_operators_are_linear_and_have_an_adjoint(name):
    operator = spec_of(name).bind(SHAPE)
    x, other = picture(seed=1, dtype=torch.float64), picture(seed=2, dtype=torch.float64)
    y = operator(x)
    torch.testing.assert_close(
        operator(2 * x - 3 * other), 2 * y - 3 * operator(other), atol=1e-6, rtol=0
    )
    probe = torch.randn(y.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (operator(leaf) * probe).sum().backward()
    torch.testing.assert_close(
        (other * leaf.grad).sum(), (operator(other) * probe).sum(), atol=1e-6, rtol=1e-6
    )


def bound(name, shape, **fields):
    return OperatorSpec.named(name).model_validate({"type": name, **fields}).bind(shape)


def test_motion_kernels_have_the_published_statistics():
    for intensity in (0.0, 0.5, 1.0):
        kernels = [motion_kernel(61, intensity, np.random.default_rng(seed)) for seed in range(12)]
        for kernel in kernels:
            assert kernel.shape == (61, 61)
            assert kernel.sum() == pytest.approx(1, abs=1e-5)
        rows, columns = np.mgrid[:61, :61]
        centres = [((k * rows).sum(), (k * columns).sum()) for k in kernels]
        offsets = np.abs(np.array(centres) - 30)
        assert np.median(offsets) < 3  # the longest paths leave the canvas
        assert offsets.max() < 12
        assert 100 < np.median([(k > 0).sum() for k in kernels]) < 260


def straightness(kernel):
    """Share of the variance along the main axis; 1 for a line."""
    rows, columns = np.mgrid[: len(kernel), : len(kernel)]
    points = np.stack([rows.ravel(), columns.ravel()])
    spread = np.linalg.eigvalsh(np.cov(points, aweights=np.clip(kernel, 0, None).ravel()))
    return spread[1] / spread.sum()


def test_intensity_bends_the_path():
    straight, bent = (
        np.mean([straightness(motion_kernel(61, i, np.random.default_rng(s))) for s in range(20)])
        for i in (0.0, 1.0)
    )
    assert straight > bent + 0.03


@pytest.mark.parametrize("quality", [10, 20, 50, 90])
def test_jpeg_matches_an_encoder(quality):
    x = picture(shape=(3, 37, 51))
    buffer = io.BytesIO()
    images.to_pil(x[0]).save(buffer, "JPEG", quality=quality, subsampling=0)
    theirs = images.to_tensor(
        images.Picture(Image.open(io.BytesIO(buffer.getvalue())).convert("RGB"))
    )
    ours = bound("jpeg", (3, 37, 51), quality=quality)(x)
    assert psnr(ours, theirs[None]).item() > 40
    assert psnr(ours, theirs[None]).item() > psnr(ours, x).item() + 3


def test_saturating_blur_varies_and_clips():
    """The picture is sharp at the focus and has a Gaussian blur at the farthest corner. Only
    highlights, which spread, are nonlinear.
    """
    shape = (3, 48, 48)
    operator = bound("saturating_blur", shape, sigma=2, focus_x=0, focus_y=0, highlights=1)
    x = picture(shape=shape, seed=4)
    gaussian = bound("gaussian_blur", shape, sigma=2)(x)
    torch.testing.assert_close(operator(x)[..., 0, 0], x[..., 0, 0])
    torch.testing.assert_close(operator(x)[..., -1, -1], gaussian[..., -1, -1])
    edge = torch.full((1, *shape), -0.5)
    edge[..., 24:] = 1.0
    plain, bright = (bound("saturating_blur", shape, sigma=2, highlights=h)(edge) for h in (1, 4))
    assert bright.max() <= 1
    assert (bright > 0.99).sum() > (plain > 0.99).sum()  # white has grown
    # dark, far from the edge: hardly changed
    torch.testing.assert_close(bright[..., :4], plain[..., :4], atol=0.1, rtol=0)


def test_colorize_measures_the_grey_picture_and_reads_any_upload_as_one():
    x = picture()
    grey = bound("colorize", SHAPE)(x)
    theirs = images.to_tensor(images.Picture(images.to_pil(x[0]).convert("L")))
    assert (grey[0] - theirs).abs().max() < 2 / 127.5
    toned = grey[0] * torch.tensor([1.0, 0.9, 0.7])[:, None, None]
    measured = Colorize().measurement(toned)
    assert torch.equal(measured[0], measured[2])


# -- edges ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fields", "shape", "words"),
    [
        ("super_resolution", {"factor": 4}, (3, 30, 32), "multiples of 4"),
        ("gaussian_blur", {"sigma": 5}, (3, 16, 64), "reaches 20 pixels"),
        ("motion_blur", {"kernel_size": 61}, (3, 24, 64), "reaches 30 pixels"),
        ("defocus_blur", {"radius": 20}, (3, 16, 64), "reaches 20 pixels"),
        ("linear_motion_blur", {"length": 60}, (3, 24, 64), "reaches 31 pixels"),
        ("kernel_blur", {"kernel": [[1.0] * 41]}, (3, 64, 20), "reaches 20 pixels"),
        ("kernel_blur", {}, (3, 64, 64), "needs a kernel"),
        ("inpainting", {}, (3, 8, 8), "needs a mask"),
        (
            "compose",
            {"stages": [{"type": "inpainting", "mask": "box"}, {"type": "hdr"}]},
            (3, 8, 8),
            "inpainting must come last",
        ),
    ],
)
def test_impossible_shapes_are_explained(name, fields, shape, words):
    with pytest.raises(InvalidSpec, match=words):
        bound(name, shape, **fields)


def test_invalid_masks_are_rejected():
    box = bound("inpainting", (3, 40, 20), mask="box", top=0.5, left=0, height=0.25, width=0.5)
    assert box.weight[0, 0].logical_not().nonzero().amin(0).tolist() == [20, 0]
    assert box.weight[0, 0].logical_not().nonzero().amax(0).tolist() == [29, 9]
    with pytest.raises(InvalidSpec, match="leaves no pixel known"):
        Inpainting().bind((3, 4, 4), mask_HW=torch.zeros(4, 4))
    with pytest.raises(InvalidSpec, match="the same size"):
        Inpainting().bind((3, 4, 4), mask_HW=torch.ones(4, 5))


CLIPPING = {"type": "hdr", "scale": 2.0}


@pytest.mark.parametrize(
    "fields",
    [CLIPPING, {"type": "compose", "stages": [{"type": "gaussian_blur", "sigma": 1.0}, CLIPPING]}],
    ids=["hdr", "compose"],
)
def test_a_fully_clipped_estimate_gets_a_gradient(fields):
    """If y is inside the range, the sensor did not clip, so the gradient must not vanish even if
    the estimate clips. If y is at the limit, only a one-sided bound is known.
    """
    y = torch.full((3, 16, 16), 0.2)
    y[:, :, 8:] = -1.0
    x = torch.full((1, 3, 16, 16), -0.9, requires_grad=True)
    operator = OperatorSpec.named(fields["type"])(**fields).bind((3, 16, 16))
    loss, misfit = MeasurementObjective(operator, y, 0.05)(x)
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    assert (gradient[..., :6] < 0).all(), "a brighter picture agrees better"
    assert gradient[..., 10:].abs().max() < 0.01 * gradient.abs().max(), (
        "but for what a blur's kernel carries over"
    )
    assert misfit.item() == pytest.approx((operator(x) - y).abs().mean().item())
    assert operator(x).min() == -1


def test_compose_applies_in_order():
    blur, small = {"type": "gaussian_blur", "sigma": 0.8}, {"type": "super_resolution", "factor": 2}
    x = picture()
    composed = bound("compose", SHAPE, stages=[blur, small])(x)
    assert torch.equal(
        composed,
        bound("super_resolution", SHAPE, factor=2)(bound("gaussian_blur", SHAPE, sigma=0.8)(x)),
    )
    masked = OperatorSpec.named("compose").model_validate(
        {"stages": [small, {"type": "inpainting", "mask": "random"}]}
    )
    assert masked.bind(SHAPE).weight.shape[-2:] == (16, 20)
    assert (
        OperatorSpec.named("compose")
        .model_validate({"stages": [{"type": "inpainting"}]})
        .needs_mask
    )
    with pytest.raises(ValidationError, match="at least 1"):
        OperatorSpec.named("compose").model_validate({"stages": []})


def test_compose_is_linear_when_its_stages_are():
    compose, blur = OperatorSpec.named("compose"), {"type": "gaussian_blur"}
    assert compose.model_validate({"stages": [blur, {"type": "super_resolution"}]}).linear
    assert not compose.model_validate({"stages": [blur, {"type": "jpeg"}]}).linear


def test_compose_cannot_be_nested():
    nested: dict[str, Any] = {"type": "hdr"}
    for _ in range(5000):
        nested = {"type": "compose", "stages": [nested]}
    with pytest.raises(ValidationError, match="cannot hold another"):
        OperatorSpec.named("compose").model_validate(nested)


@pytest.mark.parametrize("size", [3, 15, 61])
def test_blur_is_a_direct_convolution(size):
    """Large and small kernels on a picture barely larger than the kernel."""
    kernel = torch.rand(size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel /= kernel.sum()
    height, width, reach = size // 2 + 1, size + 4, size // 2
    x = picture(2, (3, height, width), dtype=torch.float64)
    padded = torch.nn.functional.pad(x, (reach,) * 4, mode="reflect")
    direct = torch.nn.functional.conv2d(padded, kernel.expand(3, 1, size, size), groups=3)
    torch.testing.assert_close(
        reflecting_filter(kernel, height, width)(x), direct, atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("last", [{"type": "denoise"}, {"type": "jpeg", "quality": 90}])
def test_what_clips_before_a_stage_that_changes_no_pixel_still_clips(last):
    """A likelihood must know it, or clipped values have no gradient."""
    hdr = {"type": "hdr", "scale": 2.0}
    spec = OperatorSpec.named("compose").model_validate({"type": "compose", "stages": [hdr, last]})
    alone = OperatorSpec.named("hdr").model_validate(hdr).bind((3, 16, 16))
    bound = spec.without_rounding().bind((3, 16, 16))
    x = 2 * picture(shape=(3, 16, 16))
    assert bound.clips
    assert torch.equal(bound.unclipped(x), alone.unclipped(x))


def test_what_clips_before_pixels_go_missing_still_clips():
    stages = [{"type": "hdr", "scale": 2.0}, {"type": "inpainting"}]
    spec = OperatorSpec.named("compose").model_validate({"type": "compose", "stages": stages})
    known = torch.ones(16, 16)
    known[:4] = 0
    bound, x = spec.bind((3, 16, 16), mask_HW=known), picture(shape=(3, 16, 16))
    assert bound.clips
    assert bound.weight is not None
    assert torch.equal(bound.unclipped(x), 2 * x * known)
    assert torch.equal(bound(x), (2 * x).clamp(-1, 1) * known)


def test_a_blur_too_narrow_to_matter_is_none():
    spec = OperatorSpec.named("saturating_blur").model_validate(
        {"type": "saturating_blur", "sigma": 3.0}
    )
    x = picture(shape=(3, 16, 16))
    narrow = spec.scaled(0.001).bind((3, 16, 16))(x)
    assert torch.isfinite(narrow).all()
