"""What counts beside missing and clipped pixels, in holes, and where nothing is drawn."""

import torch

from aps_core.imaging.known_pixels import FLAT, flat_share, holes, inside_clipped, with_known
from aps_core.numerics.likelihood import Pixels


def test_inside_of_clipped_areas_what_was_filled_counts_and_at_measured_values_nothing() -> None:
    known_BCHW = torch.ones(1, 3, 12, 16, dtype=torch.bool)
    known_BCHW[:, 0, :, 8:] = False  # one colour was clipped on the right
    known_BCHW[:, :, 2, 3] = False  # and a single pixel
    seen = Pixels(torch.zeros(1, 3, 12, 16), known_BCHW, 0.1, missing=False, white=True)
    x_BCHW, filled_BCHW = torch.zeros(1, 3, 12, 16), torch.ones(1, 3, 12, 16)
    result = inside_clipped(seen, x_BCHW, filled_BCHW, 2)
    assert torch.equal(result[known_BCHW], x_BCHW[known_BCHW])
    torch.testing.assert_close(result[:, 0, :, 10:], filled_BCHW[:, 0, :, 10:])
    border = result[0, 0, :, 8:10]
    assert torch.allclose(border, torch.tensor([0.6, 0.8]).expand(12, 2) ** 4)
    assert (result[0, :, 2, 3] < 1e-4).all()


def test_holes_are_squares_that_are_not_missing_by_chance() -> None:
    missing_BCHW = torch.zeros(1, 3, 40, 40, dtype=torch.bool)
    missing_BCHW[:, 0, 4:12, 0:6] = True  # at the border, in one colour
    missing_BCHW[:, :, 20:24, 20:24] = True  # smaller than the least hole
    missing_BCHW[:, :, 30, :] = True  # a scratch
    expected_BCHW = torch.zeros_like(missing_BCHW)
    expected_BCHW[:, 0, 4:12, 0:6] = True
    assert torch.equal(holes(missing_BCHW), expected_BCHW)

    drawn_BCHW = torch.rand(1, 3, 128, 128, generator=torch.Generator().manual_seed(0)) < 0.85
    assert holes(drawn_BCHW).float().mean() < 0.01


def test_holes_are_filled_from_their_surroundings_and_gaps_by_the_prior() -> None:
    known_BCHW = torch.ones(1, 3, 40, 40, dtype=torch.bool)
    known_BCHW[..., 8:16, 8:16] = False
    known_BCHW[..., 30, 30] = False
    seen = Pixels(torch.zeros(1, 3, 40, 40), known_BCHW, 1e-3, missing=True, white=True)
    x_BCHW, filled_BCHW = torch.full((1, 3, 40, 40), 0.4), torch.full((1, 3, 40, 40), -0.6)
    result = with_known(seen, x_BCHW, filled_BCHW)
    assert (result[..., 8:16, 8:16] - filled_BCHW[..., 8:16, 8:16]).abs().max() < 1e-3
    assert (result[..., 30, 30] - x_BCHW[..., 30, 30]).abs().max() < 1e-3


def test_the_first_estimate_counts_where_it_has_one_colour() -> None:
    first_BCHW = torch.full((1, 3, 40, 40), 0.3)
    first_BCHW[:, 1, :, 20:] = 0.6  # an edge in one colour
    share_BW = flat_share(first_BCHW)[:, 0, 7]
    near = (torch.arange(40) - 19.5).abs() < 4  # as far as it is looked for
    assert share_BW[0, near].max() < 1e-9
    torch.testing.assert_close(share_BW[0, ~near], torch.ones(32), atol=1e-2, rtol=0)

    grain_BCHW = torch.randn(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    shares = [float(flat_share(n * FLAT * grain_BCHW).mean()) for n in (0.1, 1, 3)]
    assert shares[0] > 0.98
    assert 0.3 < shares[1] < 0.5
    assert shares[2] < 0.01
