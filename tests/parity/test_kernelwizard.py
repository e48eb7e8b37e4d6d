"""The nonlinear blur: comparison with the original KernelWizard, other sizes, missing weights."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from aps_core.errors import WeightsInvalid, WeightsMissing
from aps_core.operators import OperatorSpec
from aps_core.operators.nonlinear_blur.network import (
    KernelWizard,
    KernelWizardConfig,
    load_kernel_wizard,
)

TOLERANCE = 1e-5


@pytest.fixture
def fixture(parity, tmp_path, monkeypatch):
    """The fixture, installed as the operator's weights."""
    found = parity("kernelwizard")
    shutil.copytree(found.folder, tmp_path / "kernelwizard")
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))
    return found


def blur(shape, **fields):
    return OperatorSpec.named("nonlinear_blur")(**fields).bind(shape)


def with_code(operator, code):
    """The bound operator with the fixture's code instead of the randomly drawn one."""
    assert operator.state()["code"].shape == code.shape
    operator.state()["code"].copy_(code)
    return operator


def test_network(fixture):
    net, _ = load_kernel_wizard(fixture.folder)
    expected = fixture.arrays()
    image = expected["image01"]
    torch.testing.assert_close(
        net(image, expected["code"]), expected["out"], atol=TOLERANCE, rtol=0
    )
    larger = torch.nn.functional.interpolate(image, scale_factor=2.0, mode="nearest")
    out = net(larger, expected["code_2x2"])[..., 64:128, 64:128]
    torch.testing.assert_close(out, expected["out_256_crop_64_128"], atol=TOLERANCE, rtol=0)


def test_operator(fixture):
    """Input and clamped output are in [-1, 1]; the network uses [0, 1]."""
    expected = fixture.arrays()
    x = 2 * expected["image01"] - 1
    operator = with_code(blur(tuple(x.shape[1:])), expected["code"])
    torch.testing.assert_close(
        operator(x), expected["operator_out_from_pm1"], atol=TOLERANCE, rtol=0
    )


def test_standard_code(fixture):
    """The published code is the first draw of numpy's legacy generator, seed 0, at 256 pixels."""
    standard = fixture.config("standard_code_seed0.json")
    code = blur((3, 256, 256), seed=standard["seed"]).state()["code"]
    assert code.flatten()[: len(standard["first5"])].tolist() == pytest.approx(
        standard["first5"], abs=1e-6
    )
    assert not torch.equal(code, blur((3, 256, 256), seed=standard["seed"] + 1).state()["code"])
    full = 1.2 * np.random.RandomState(standard["seed"]).randn(
        1, KernelWizardConfig().kernel_dim, 2, 2
    )
    assert full.mean() == pytest.approx(standard["mean"])
    assert full.std() == pytest.approx(standard["std"])
    np.testing.assert_allclose(code.numpy().ravel(), full.ravel()[: code.numel()], atol=1e-6)


@pytest.mark.parametrize(
    ("size", "entries"), [((128, 256), (1, 2)), ((130, 100), (2, 1)), ((20, 36), (1, 1))]
)
def test_other_sizes_are_mirrored_and_cropped(fixture, size, entries):
    operator = blur((3, *size))
    assert operator.state()["code"].shape[-2:] == entries
    x = (
        torch.rand(1, 3, *size, generator=torch.Generator().manual_seed(0)) * 2 - 1
    ).requires_grad_()
    y = operator(x)
    assert y.shape == x.shape
    y.sum().backward()
    assert x.grad.abs().sum() > 0
    rows, columns = (n * 128 for n in entries)
    if rows - size[0] < size[0] and columns - size[1] < size[1]:  # torch mirrors once
        padded = torch.nn.functional.pad(
            x.detach(), (0, columns - size[1], 0, rows - size[0]), mode="reflect"
        )
        whole = with_code(blur((3, rows, columns)), operator.state()["code"])(padded)
        torch.testing.assert_close(y, whole[..., : size[0], : size[1]])


def test_published_shapes(fixture):
    with torch.device("meta"):
        net = KernelWizard(KernelWizardConfig())
    published = fixture.config("real_state_dict_shapes.json")
    applied = {
        key: shape for key, shape in published.items() if not key.startswith("kernel_extractor.")
    }
    assert {key: list(value.shape) for key, value in net.state_dict().items()} == applied


def test_the_kernel_estimation_network_is_not_loaded(fixture, tmp_path):
    path = tmp_path / "kernelwizard" / "model.safetensors"
    save_file({**load_file(path), "kernel_extractor.model.1.weight": torch.zeros(2)}, path)
    assert blur((3, 128, 128))(torch.zeros(1, 3, 128, 128)).shape == (1, 3, 128, 128)


def test_missing_or_invalid_weights_are_reported(fixture, tmp_path, monkeypatch):
    path = tmp_path / "kernelwizard" / "model.safetensors"
    state = load_file(path)
    path.unlink()
    with pytest.raises(WeightsMissing, match=r"'kernelwizard' are incomplete: .*holds no model"):
        blur((3, 128, 128))
    torch.save(state, path.with_suffix(".pth"))
    with pytest.raises(WeightsInvalid, match=r"model\.pth is a pickle"):
        blur((3, 128, 128))
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(
        WeightsMissing,
        match=r"'kernelwizard' are missing.*aps weights fetch kernelwizard.*APS_WEIGHTS_DIR",
    ):
        blur((3, 128, 128))
    assert OperatorSpec.named("compose").model_validate(
        {"stages": [{"type": "hdr"}, {"type": "nonlinear_blur"}]}
    ).checkpoints == ("kernelwizard",)
