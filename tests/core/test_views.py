"""Views of pictures, in which a prior sees them."""

import pytest
import torch
from torch import Tensor

from aps_core.sampling.views import View, denoised_in, view
from aps_core.tokenizers.pixels import PixelTokenizer
from aps_core.types import MASK, Denoised, Grid

GRID = (6, 10)
KNOWN_BL = (torch.arange(120) % 3 == 0).view(2, 60)
VIEWS = [view(done, 5, turned) for done in range(4) for turned in (False, True)]


class Echo:
    """Says of every pixel what is given of it, and where it sees it."""

    tokenizer = PixelTokenizer()

    def logits(self, z_BL: Tensor, **_: object) -> Tensor:
        raise AssertionError("A view asks for a denoised picture alone.")

    def denoise(
        self, z_BL: Tensor, estimate_BCHW: Tensor, pulled_BCHW: Tensor, grid: Grid
    ) -> Denoised:
        decided_BL = z_BL != MASK
        assert torch.equal(z_BL[decided_BL], self.tokenizer.encode(estimate_BCHW)[decided_BL])
        place_BL = torch.arange(z_BL.shape[1]).expand(z_BL.shape).float()
        return Denoised(pulled_BCHW[:, 0].flatten(1), decided_BL.float(), estimate_BCHW, place_BL)


def pictures(seed: int) -> Tensor:
    return torch.rand(2, 3, *GRID, generator=torch.Generator().manual_seed(seed))


def echoed(seen: View) -> Denoised:
    return denoised_in(Echo(), seen, KNOWN_BL, pictures(0), pictures(1), GRID)


@pytest.mark.parametrize("seen", VIEWS)
def test_what_is_said_of_a_picture_in_a_view_is_said_of_its_own_pixels(seen: View) -> None:
    said = echoed(seen)
    assert torch.equal(said.mean_BL, pictures(1)[:, 0].flatten(1))
    assert torch.equal(said.variance_BL, KNOWN_BL.float())
    assert torch.equal(said.colours_BCHW, pictures(0))


def test_rounds_see_pixels_at_other_places() -> None:
    places = {tuple(echoed(seen).weight_BL[0].tolist()) for seen in VIEWS}
    assert len(places) == 7, "the first view is upright, turned or not"


def test_beyond_a_moved_picture_nothing_is_known_and_its_border_goes_on() -> None:
    seen = View(down=2, right=1)
    known, grid = seen.laid_pixels(torch.ones(2, 60, dtype=torch.bool), GRID)
    assert grid == (8, 11)
    assert known.sum().item() == 120
    laid = seen.laid(pictures(0))
    assert torch.equal(laid[..., 0, 1:], pictures(0)[..., 0, :])
    assert torch.equal(laid[..., 2:, 0], pictures(0)[..., :, 0])


@pytest.mark.parametrize("turned", [False, True])
def test_the_last_round_is_not_moved(turned: bool) -> None:
    last = view(7, 8, turned)
    assert (last.down, last.right) == (0, 0)
    assert (last.transposed, last.mirrored) == (turned, (-2,) if turned else ())
