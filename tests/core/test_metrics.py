"""Comparison of metrics with torchmetrics."""

import pytest
import torch
from torchmetrics.functional.image import (
    peak_signal_noise_ratio,
    structural_similarity_index_measure,
)

from aps_core.evaluation.metrics import gradient_energy, psnr, ssim


@pytest.fixture
def pair():
    generator = torch.Generator().manual_seed(0)
    truth = torch.nn.functional.interpolate(
        torch.rand(3, 3, 9, 7, generator=generator) * 2 - 1, (48, 40), mode="bicubic"
    ).clamp(-1, 1)
    return (truth + 0.1 * torch.randn(truth.shape, generator=generator)).clamp(-1, 1), truth


def test_psnr(pair):
    x, truth = pair
    for i in range(3):
        assert psnr(x, truth)[i].item() == pytest.approx(
            peak_signal_noise_ratio(x[i], truth[i], data_range=2.0).item(), abs=1e-4
        )
    assert torch.equal(psnr(x * 5, truth), psnr((x * 5).clamp(-1, 1), truth))


def test_ssim(pair):
    x, truth = pair
    # torchmetrics crops the border it padded, so the test pads and crops in the same way
    theirs = structural_similarity_index_measure(
        x, truth, data_range=2.0, sigma=1.5, kernel_size=11, reduction="none"
    )
    torch.testing.assert_close(ssim(x, truth), theirs, atol=0.02, rtol=0)
    inner = (
        torch.nn.functional.pad(x, (11, 11, 11, 11), mode="reflect"),
        torch.nn.functional.pad(truth, (11, 11, 11, 11), mode="reflect"),
    )
    wide = structural_similarity_index_measure(
        *inner, data_range=2.0, sigma=1.5, kernel_size=11, reduction="none", return_full_image=True
    )[1]
    torch.testing.assert_close(
        ssim(x, truth), wide[..., 11:-11, 11:-11].flatten(1).mean(1), atol=1e-4, rtol=0
    )
    assert ssim(truth, truth) == pytest.approx([1.0, 1.0, 1.0], abs=1e-5)


def test_gradient_energy_measures_detail(pair):
    x, truth = pair
    assert (gradient_energy(x) > gradient_energy(truth)).all()
    assert gradient_energy(torch.ones(1, 3, 8, 8)).item() == 0
    ramp = torch.linspace(-1, 1, 5).expand(1, 3, 5, 5)
    assert gradient_energy(ramp).item() == pytest.approx(0.25)
