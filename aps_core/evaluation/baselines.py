"""Restorations without a learned prior, which a sampler must beat to be worth its time.

Free parameters are tuned per task on withheld pictures, as the samplers' settings are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.evaluation.cases import Case
from aps_core.imaging.filters import gaussian
from aps_core.imaging.total_variation import WEIGHT, total_variation_estimate
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators.hdr import HDR
from aps_core.sampling.first_estimate import classical_estimate

TV_WEIGHTS = {
    "sr4": 4.0,
    "gaussian_blur": 4.0,
    "inpainting70": 12.0,
    "hdr": 12.0,
    "motion_blur": 6.0,
    "saturating_blur": 6.0,
    "nonlinear_blur": 6.0,
    "sr2": 8.0,
    "denoise": 8.0,
    "jpeg": 16.0,
    "inpainting50": 16.0,
}
"""Weight of the total variation by task, for photographs (``research.tuning.total_variation``).
Tasks that are not listed have the weight of a restoration's start.
"""
TV_WEIGHTS_DOCUMENTS = {
    "sr4": 2.0,
    "gaussian_blur": 2.0,
    "inpainting70": 8.0,
    "motion_blur": 2.0,
    "sr2": 4.0,
    "denoise": 4.0,
    "jpeg": 16.0,
    "inpainting50": 8.0,
}
"""The same for pages, scans and screens."""
SHRINKAGE_STEPS = 250
"""As many as of total variation."""
CLIPPED_SMOOTHNESS = 12.0
"""Of photographs; 0 for documents."""
WIENER_WEIGHT = 1.0
"""Weight of the squared Laplacian, in units of the noise's deviation."""


def simple(case: Case) -> Tensor:
    """Bicubic enlargement, normalised Gaussian filling, inverse of the stretched contrast, or the
    measurement itself.
    """
    y = case.y_CHW[None]
    if y.shape[-2:] != (case.height, case.width):
        return F.interpolate(y, (case.height, case.width), mode="bicubic").clamp(-1, 1)
    if isinstance(case.spec, HDR):
        return y / case.spec.scale
    weight = case.operator.weight
    if weight is None:
        return y.clamp(-1, 1)
    row = gaussian(1.0, 4, y.dtype, y.device)
    kernel = torch.outer(row, row).expand(3, 1, 9, 9)
    mask = weight.expand_as(y)
    filled = F.conv2d(y * mask, kernel, padding=4, groups=3) / F.conv2d(
        mask, kernel, padding=4, groups=3
    ).clamp(min=1e-6)
    return torch.where(mask > 0, y, filled).clamp(-1, 1)


def total_variation(case: Case, weights: Mapping[str, float] = TV_WEIGHTS) -> Tensor:
    """Total-variation least squares with the true operator and noise, and a weight by task."""
    likelihood = MeasurementObjective(case.operator, case.y_CHW, case.sigma, "l2")
    return total_variation_estimate(likelihood, simple(case), weight=weights.get(case.task, WEIGHT))


def shrinkage(case: Case, clipped_smoothness: float = CLIPPED_SMOOTHNESS) -> Tensor:
    """Shrinkage in the cosine transform, in turn with fits to the measurement; missing and clipped
    values by slopes or total variation: what restorations with ``plug_and_play`` begin with.
    """
    likelihood = MeasurementObjective(case.operator, case.y_CHW, case.likelihood_noise, "l2")
    nothing_1CHW = case.truth_CHW.new_zeros(1, 3, case.height, case.width)
    return classical_estimate(likelihood, nothing_1CHW, SHRINKAGE_STEPS, clipped_smoothness)


def wiener(case: Case) -> Tensor:
    """Deconvolution by a Wiener filter with a Laplacian prior, for blurs of a known kernel; other
    measurements as :func:`simple`.

    The kernel's transfer function is measured with a point of light in the middle of the picture.
    """
    if case.task not in ("gaussian_blur", "motion_blur"):
        return simple(case)
    y = case.y_CHW[None]
    height, width = y.shape[-2:]
    point = torch.zeros_like(y)
    point[..., height // 2, width // 2] = 1
    transfer = torch.fft.rfft2(
        torch.roll(case.operator(point), (-(height // 2), -(width // 2)), (2, 3))
    )
    laplacian = torch.zeros_like(y)
    laplacian[..., 0, 0] = 4
    for row, column in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        laplacian[..., row, column] = -1
    rough = torch.fft.rfft2(laplacian).abs().square()
    power = transfer.abs().square() + WIENER_WEIGHT * case.sigma * rough
    x: Tensor = torch.fft.irfft2(transfer.conj() * torch.fft.rfft2(y) / power, s=(height, width))
    return x.clamp(-1, 1)


def biharmonic(case: Case) -> Tensor:
    """Missing pixels filled with the smoothest surface through the known ones (scikit-image);
    measurements without missing pixels as :func:`simple`.

    Damelin and Hoang, On surface completion and image inpainting by biharmonic functions, 2018.
    """
    if case.operator.weight is None:
        return simple(case)
    from skimage.restoration import inpaint_biharmonic

    y_HWC = case.y_CHW.permute(1, 2, 0).double().numpy()
    missing_HW = (case.operator.weight[0] == 0).numpy().squeeze()
    filled_HWC = inpaint_biharmonic(y_HWC, missing_HW, channel_axis=-1)
    return torch.from_numpy(filled_HWC).to(case.y_CHW).permute(2, 0, 1)[None].clamp(-1, 1)


BASELINES: dict[str, Callable[[Case], Tensor]] = {
    "input": simple,
    "tv": total_variation,
    "shrinkage": shrinkage,
    "wiener": wiener,
    "biharmonic": biharmonic,
}
"""By name in the tables."""
