"""The tokenizer of pixels: levels, colours, expectations, latents."""

import pytest
import torch

from aps_core.evaluation.metrics import psnr
from aps_core.tokenizers.pixels import PixelTokenizer, brightness


@pytest.fixture
def tokenizer() -> PixelTokenizer:
    return PixelTokenizer()


def round_trip(tokenizer: PixelTokenizer, x_BCHW: torch.Tensor) -> torch.Tensor:
    codes_BL = tokenizer.encode(x_BCHW)
    grid = (x_BCHW.shape[2], x_BCHW.shape[3])
    return tokenizer.decode(tokenizer.codebook_KD[codes_BL], grid)


def test_sixteen_greys_are_kept_exactly(tokenizer):
    greys = torch.linspace(-1, 1, 16).view(1, 1, 1, 16).expand(1, 3, 2, 16)
    assert torch.allclose(round_trip(tokenizer, greys), greys, atol=1e-6)


@pytest.mark.parametrize("size", [(8, 8), (7, 9), (2, 3)])
def test_greys_between_move_by_half_a_level_at_most(tokenizer, size):
    x = torch.rand(4, 1, *size, generator=torch.Generator().manual_seed(0)).expand(-1, 3, -1, -1)
    x = 2 * x - 1
    assert (round_trip(tokenizer, x) - x).abs().max() <= 1 / 15 + 1e-3


def test_colours_are_kept_for_each_cell(tokenizer):
    colours = torch.rand(64, 3, 1, 1, generator=torch.Generator().manual_seed(0)) * 2 - 1
    x = colours.expand(-1, -1, 4, 4)
    y = round_trip(tokenizer, x)
    assert torch.equal(y, y[..., :1, :1].expand_as(y))
    assert psnr(y, x).mean() > 22
    muted = 0.2 * x
    assert psnr(round_trip(tokenizer, muted), muted).mean() > 30  # finer near grey


def test_the_picture_of_an_expectation_is_the_expected_picture(tokenizer):
    """Of brightness exactly; the mean over codes is taken over pictures on one side."""
    probabilities_LK = torch.rand(16, 64, generator=torch.Generator().manual_seed(0)).softmax(-1)
    every_KLD = tokenizer.codebook_KD[:, None].expand(-1, 16, -1)
    grey = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    pictures = (tokenizer.decode(every_KLD, (4, 4)) * grey).sum(1).flatten(1)  # (K, L)
    expected_L = (probabilities_LK.T * pictures).sum(0)
    mean_LD = probabilities_LK @ tokenizer.codebook_KD
    decoded = (tokenizer.decode(mean_LD[None], (4, 4)) * grey).sum(1).flatten()
    assert torch.allclose(decoded, expected_L, atol=1e-5)


def test_a_latent_is_the_distance_from_the_next_change_of_its_bit(tokenizer):
    level = torch.linspace(0, 15, 301)
    x = (level / 7.5 - 1).view(1, 1, 1, -1).expand(1, 3, 2, -1)
    latent_DW = tokenizer.features(x)[0, :4, 0]
    index = (level + 0.5 + 1e-4).floor()
    for bit, row in zip((3, 2, 1, 0), latent_DW, strict=True):
        states = (torch.arange(16) >> bit) & 1
        changes = (states.diff() != 0).nonzero().flatten() + 0.5  # between two levels
        distance = (level[:, None] - changes).abs().amin(1)
        assert torch.allclose(row.abs(), distance, atol=1e-3)
        assert torch.equal(row > 0, states[index.long()] == 1)


def test_every_colour_has_a_finite_latent(tokenizer):
    corners = torch.cartesian_prod(*3 * [torch.tensor([-1.0, 0.0, 1.0])])
    x = corners.T.reshape(1, 3, 1, 27).repeat_interleave(2, 3).expand(-1, -1, 2, -1)
    assert tokenizer.features(x).isfinite().all()
    y = round_trip(tokenizer, x)
    assert y.isfinite().all()
    assert (y - x).abs().max() < 0.5


def test_a_row_of_pixels_has_its_greys(tokenizer):
    for rows, columns in ((1, 5), (4, 1), (1, 1)):
        greys = torch.linspace(-1, 1, 16)[: rows * columns]
        x = greys.view(1, 1, rows, columns).expand(-1, 3, -1, -1)
        y = round_trip(tokenizer, x)
        assert y.shape == x.shape
        assert torch.allclose(brightness(y), brightness(x), atol=1e-5)


def test_pictures_are_their_brightness_and_their_colours(tokenizer):
    x_BCHW = torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(0)) * 2 - 1
    unchanged_B2HW = torch.zeros(2, 2, 5, 7)
    colours_BCHW = tokenizer.colours(x_BCHW, unchanged_B2HW)
    assert torch.allclose(colours_BCHW + brightness(x_BCHW)[:, None], x_BCHW, atol=1e-6)
    changed_BCHW = tokenizer.colours(x_BCHW, unchanged_B2HW + 0.1) - colours_BCHW
    assert brightness(changed_BCHW).abs().max() < 1e-6
    y_BHW, (r, _, b) = brightness(changed_BCHW), changed_BCHW.unbind(1)
    # the differences of ITU-R BT.601, in [-1, 1]
    assert torch.allclose((b - y_BHW) / 1.772, torch.tensor(0.1))
    assert torch.allclose((r - y_BHW) / 1.402, torch.tensor(0.1))
