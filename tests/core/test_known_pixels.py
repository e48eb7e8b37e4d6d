"""What counts beside missing and clipped pixels."""

import torch

from aps_core.imaging.known_pixels import inside_clipped
from aps_core.likelihood import Pixels


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
