"""Comparison of measurement operators with the DPS release."""

import numpy as np
import pytest
import torch

from aps_core.operators import OperatorSpec


@pytest.fixture(scope="module")
def fixture(parity):
    return parity("operators")


@pytest.fixture(scope="module")
def expected(fixture):
    return fixture.arrays()


def measure(expected, name, mask_HW=None, **fields):
    x = expected["image"]
    return (
        OperatorSpec.named(name)
        .model_validate({"type": name, **fields})
        .bind(x.shape[1:], mask_HW=mask_HW)(x)
    )


def test_super_resolution(fixture, expected):
    factor = fixture.config()["sr_scale"]
    torch.testing.assert_close(
        measure(expected, "super_resolution", factor=factor),
        expected[f"sr{factor}"],
        atol=1e-5,
        rtol=0,
    )


def test_gaussian_blur(fixture, expected):
    sigma = fixture.config()["gauss"]["sigma"]
    torch.testing.assert_close(
        measure(expected, "gaussian_blur", sigma=sigma),
        expected[f"gauss61_s{sigma:.0f}"],
        atol=1e-5,
        rtol=0,
    )


def test_hdr(fixture, expected):
    assert torch.equal(
        measure(expected, "hdr"), expected[f"hdr_scale{fixture.config()['hdr_scale']}"]
    )


def test_inpainting(fixture, expected):
    settings = fixture.config()["inpaint"]
    mask = expected[f"inpaint_random70_mask_npseed{settings['numpy_seed']}"].float()
    assert torch.equal(measure(expected, "inpainting", mask_HW=mask), expected["inpaint_random70"])
    height, width = mask.shape
    ours = (
        OperatorSpec.named("inpainting")
        .model_validate({"type": "inpainting", "mask": "random", "fraction": settings["mask_prob"]})
        .bind((3, height, width))
    )
    assert (
        int((1 - ours.weight).sum())
        == int((1 - mask).sum())
        == int(settings["mask_prob"] * mask.numel())
    )


def test_motion_blur(parity, monkeypatch):
    expected = parity("motionblur").arrays()
    kernel = expected["operator_kernel"].numpy().astype(np.float32)
    monkeypatch.setattr("aps_core.operators.motion_blur.motion_kernel", lambda *_: kernel)
    blurred = measure(expected, "motion_blur", kernel_size=len(kernel))
    torch.testing.assert_close(blurred, expected["blurred_image"], atol=1e-5, rtol=0)
