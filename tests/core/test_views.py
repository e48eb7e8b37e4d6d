"""Views of pictures, in which a prior sees them."""

import pytest
import torch
from torch import Tensor

from aps_core.sampling.views import View, denoised_in, view
from aps_core.tokenizers.pixels import PixelTokenizer
from aps_core.types import Denoised

GRID = (6, 10)
VIEWS = [view(done, 5, turned) for done in range(4) for turned in (False, True)]


class Echo:
    """Says of every pixel what is given of it, and where it sees it."""

    tokenizer = PixelTokenizer()

    def logits(self, z_BL: Tensor, **_: object) -> Tensor:
        raise AssertionError("A view asks for a denoised picture alone.")

    def denoise(self, estimate_BCHW: Tensor, pulled_BCHW: Tensor) -> Denoised:
        seen_BL = pulled_BCHW[:, 0].flatten(1)
        place_BL = torch.arange(seen_BL.shape[1]).expand(seen_BL.shape).float()
        return Denoised(seen_BL, 2 * seen_BL, estimate_BCHW, place_BL)


def pictures(seed: int) -> Tensor:
    return torch.rand(2, 3, *GRID, generator=torch.Generator().manual_seed(seed))


def echoed(seen: View) -> Denoised:
    return denoised_in(Echo(), seen, pictures(0), pictures(1))


@pytest.mark.parametrize("seen", VIEWS)
def test_what_is_said_of_a_picture_in_a_view_is_said_of_its_own_pixels(seen: View) -> None:
    said = echoed(seen)
    assert torch.equal(said.mean_BL, pictures(1)[:, 0].flatten(1))
    assert torch.equal(said.variance_BL, 2 * said.mean_BL)
    assert torch.equal(said.colours_BCHW, pictures(0))


def test_rounds_see_pixels_at_other_places() -> None:
    places = {tuple(echoed(seen).weight_BL[0].tolist()) for seen in VIEWS}
    assert len(places) == 7, "the first view is upright, turned or not"


def test_beyond_a_moved_picture_its_border_goes_on() -> None:
    seen = View(down=2, right=1)
    laid = seen.apply(pictures(0))
    assert laid.shape == (2, 3, 8, 11)
    assert torch.equal(laid[..., 0, 1:], pictures(0)[..., 0, :])
    assert torch.equal(laid[..., 2:, 0], pictures(0)[..., :, 0])


@pytest.mark.parametrize("turned", [False, True])
def test_the_last_round_is_not_moved(turned: bool) -> None:
    last = view(7, 8, turned)
    assert (last.down, last.right) == (0, 0)
    assert (last.transposed, last.mirrored) == (turned, (-2,) if turned else ())
