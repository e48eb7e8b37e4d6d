"""Colours that follow brightness, fitted to a measurement."""

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators.base import Bound
from aps_core.sampling.colour_fit import fitted_colours, unexplained
from aps_core.tokenizers.pixels import brightness

RED, WHITE, BLUE = (
    torch.tensor(rgb).view(1, 3, 1, 1) for rgb in ([0.8, -1, -1], [1.0, 1, 1], [-1.0, -1, 0.9])
)


def line() -> Tensor:
    """A red line of two pixels on white paper."""
    red_11HW = torch.zeros(1, 1, 16, 16)
    red_11HW[..., 7:9] = 1
    return RED * red_11HW + WHITE * (1 - red_11HW)


def colours(x_BCHW: Tensor) -> Tensor:
    return x_BCHW - brightness(x_BCHW)[:, None]


def reduced(x_BCHW: Tensor) -> Tensor:
    return F.avg_pool2d(x_BCHW, 4)


def measured(x_BCHW: Tensor, sigma: float = 0.02) -> MeasurementObjective:
    operator = Bound(reduced)
    y_BCHW = operator(x_BCHW)
    noise = sigma * torch.randn(y_BCHW.shape, generator=torch.Generator().manual_seed(0))
    return MeasurementObjective(operator, (y_BCHW + noise)[0], sigma, "l2")


def blurred(x_BCHW: Tensor) -> Tensor:
    """Colours of the reduced picture, enlarged."""
    return F.interpolate(colours(reduced(x_BCHW)), x_BCHW.shape[2:], mode="bilinear")


def error(colours_BCHW: Tensor, x_BCHW: Tensor) -> float:
    return float((colours_BCHW - colours(x_BCHW)).square().mean().sqrt())


def test_a_red_line_is_red_again_where_its_brightness_is_sharp() -> None:
    x_BCHW = line()
    fitted_BCHW = fitted_colours(measured(x_BCHW), brightness(x_BCHW), blurred(x_BCHW), 8.0, 40)
    assert error(fitted_BCHW, x_BCHW) < 0.2 * error(blurred(x_BCHW), x_BCHW)
    torch.testing.assert_close(brightness(fitted_BCHW), torch.zeros(1, 16, 16), atol=1e-5, rtol=0)


def test_without_its_brightness_it_stays_blurred() -> None:
    x_BCHW = line()
    even_BHW = torch.zeros(1, 16, 16)
    fitted_BCHW = fitted_colours(measured(x_BCHW), even_BHW, blurred(x_BCHW), 8.0, 40)
    assert error(fitted_BCHW, x_BCHW) > 0.5 * error(blurred(x_BCHW), x_BCHW)


def test_mixtures_of_two_colours_are_explained_and_edges_of_colour_alone_are_not() -> None:
    share_11HW = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    mixed_BCHW = RED * share_11HW + WHITE * (1 - share_11HW)
    b_B1HW = brightness(mixed_BCHW)[:, None]
    variance = colours(mixed_BCHW).var()
    assert unexplained(colours(mixed_BCHW), b_B1HW).mean() < 0.02 * variance
    sides_BCHW = torch.cat([colours(RED).expand(1, 3, 8, 4), colours(BLUE).expand(1, 3, 8, 4)], 3)
    alone_BHW = unexplained(sides_BCHW, torch.zeros(1, 1, 8, 8))[0]
    assert (alone_BHW[:, 3:5] > 0.1).all()
    assert (alone_BHW[:, [0, 1, 6, 7]] < 1e-4).all()
