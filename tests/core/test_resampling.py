"""Padding and resizing equal torch's implementations, forward and backward."""

import numpy as np
import pytest
import torch

from aps_core.imaging.resampling import mirror_pad, resize


def picture(size):
    return torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0)).requires_grad_()


def same(ours, theirs, x):
    torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=0)
    probe = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    gradients = [torch.autograd.grad((out * probe).sum(), x)[0] for out in (ours, theirs)]
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("rows", "columns"), [((3, 0), (0, 5)), ((8, 8), (11, 2)), ((0, 0), (0, 0))]
)
def test_reflection(rows, columns):
    x = picture((9, 12))
    same(
        mirror_pad(x, rows, columns),
        torch.nn.functional.pad(x, (*columns, *rows), mode="reflect"),
        x,
    )


def test_reflection_repeats_on_small_pictures():
    line = torch.arange(3.0).view(1, 1, 1, 3)
    padded = mirror_pad(line, (0, 2), (4, 4))[0, 0]
    assert padded[0].tolist() == [0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2]
    assert (padded == padded[0]).all()  # a single row is its own mirror
    assert mirror_pad(line, (0, 0), (1, 10))[0, 0, 0].tolist() == [
        1,
        0,
        1,
        2,
        1,
        0,
        1,
        2,
        1,
        0,
        1,
        2,
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("old", "new"), [((30, 45), (16, 16)), ((12, 10), (20, 31)), ((16, 40), (16, 20))]
)
def test_bicubic(old, new):
    x = picture(old)
    same(
        resize(x, new, deterministic=True),
        torch.nn.functional.interpolate(x, new, mode="bicubic", antialias=True),
        x,
    )


def test_the_edge_is_repeated_on_request():
    x = torch.rand(2, 1, 9, 3, generator=torch.Generator().manual_seed(0))
    padded = mirror_pad(x, (4, 0), (7, 2), repeat_edge=True)
    expected = np.pad(x, ((0, 0), (0, 0), (4, 0), (7, 2)), mode="symmetric")
    assert np.array_equal(padded, expected)
