"""Comparison of motion-blur kernel statistics with those of the public generator."""

import numpy as np
import pytest

from aps_core.operators.motion_blur import motion_kernel


@pytest.fixture(scope="module")
def published(parity):
    """Published kernels by intensity."""
    kernels = parity("motionblur").arrays()
    by_intensity: dict[float, list[np.ndarray]] = {}
    for name, kernel in kernels.items():
        if name.startswith("kernel_seed"):
            by_intensity.setdefault(float(name.rpartition("_i")[2]), []).append(kernel.numpy())
    return by_intensity


def support(kernels):
    return np.median([(kernel > 0).sum() for kernel in kernels])


def offset(kernel):
    rows, columns = np.mgrid[: len(kernel), : len(kernel)]
    centre = (len(kernel) - 1) / 2
    return np.hypot((kernel * rows).sum() - centre, (kernel * columns).sum() - centre)


def spread(kernel):
    """Root mean square distance from the centre of mass, in pixels."""
    rows, columns = np.mgrid[: len(kernel), : len(kernel)]
    down, across = (kernel * rows).sum(), (kernel * columns).sum()
    return np.sqrt((kernel * ((rows - down) ** 2 + (columns - across) ** 2)).sum())


def test_support_centre_and_extent_agree(published):
    for intensity, theirs in published.items():
        ours = [
            motion_kernel(len(theirs[0]), intensity, np.random.default_rng(seed))
            for seed in range(24)
        ]
        assert all(kernel.shape == theirs[0].shape for kernel in ours)
        assert all(kernel.sum() == pytest.approx(1, abs=1e-5) for kernel in ours)
        assert 0.5 < support(ours) / support(theirs) < 2
        # with only three kernels per intensity, their median must lie in the central range of ours
        for measure in (offset, spread):
            low, high = np.quantile([measure(kernel) for kernel in ours], [0.02, 0.98])
            assert low <= np.median([measure(kernel) for kernel in theirs]) <= high, (
                intensity,
                measure.__name__,
            )
