"""Whether a picture shows a page or a photograph, also where it was badly exposed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from aps_core.identify.diagnosis import shows_text
from aps_core.identify.diagnosis.content import LAGS, features
from aps_core.identify.diagnosis.perceptron import LARGEST, answer, stored
from aps_core.imaging.images import Picture

EXAMPLES = Path(__file__).parents[2] / "examples"


def exposed(name: str, light: float) -> Picture:
    pixels = np.asarray(Image.open(EXAMPLES / name).convert("RGB"), dtype=float)
    return Picture(Image.fromarray((light * pixels).clip(0, 255).round().astype(np.uint8)))


@pytest.mark.parametrize("light", [0.4, 1.0, 2.0])
@pytest.mark.parametrize("name", ["coffee", "chelsea", "flower", "kleiber", "bywater"])
def test_a_badly_exposed_photograph_is_no_page(name: str, light: float) -> None:
    assert not shows_text(exposed(f"photos/{name}.png", light))


@pytest.mark.parametrize("light", [0.4, 1.0, 2.0])
@pytest.mark.parametrize("name", ["page-karla", "page-play", "scan-1400", "screen-1-shell-exit"])
def test_a_badly_exposed_page_is_one(name: str, light: float) -> None:
    assert shows_text(exposed(f"documents/{name}.png", light))


def test_lines_of_text_are_told_by_their_distance() -> None:
    page = Image.new("RGB", (160, 160), "white")
    draw = ImageDraw.Draw(page)
    for top in range(0, 160, 20):
        draw.rectangle((8, top, 150, top + 7), "black")
    read = features(np.asarray(page))
    rows = dict(zip(LAGS, read[-len(LAGS) - 1 : -1], strict=True))
    assert rows[20] > 0.8
    assert rows[10] < 0


def test_a_mirrored_picture_is_told_the_same() -> None:
    crop = np.asarray(Image.open(EXAMPLES / "photos/coffee.png").convert("RGB"))[:128, :128]
    np.testing.assert_allclose(features(crop), features(crop[:, ::-1]), atol=1e-9)


@pytest.mark.parametrize("level", [0, 128, 255])
def test_one_colour_has_features_too(level: int) -> None:
    assert np.isfinite(features(np.full((48, 64, 3), level, dtype=np.uint8))).all()


@pytest.mark.parametrize("name", ["blur", "content"])
def test_the_network_is_what_pytorch_computes(name: str) -> None:
    net = {key: torch.from_numpy(value) for key, value in stored(name).items()}
    spread = net["deviation"] * torch.linspace(-9, 9, len(net["mean"]), dtype=torch.float64)
    hidden = (spread / net["deviation"]).clamp(-LARGEST, LARGEST)
    for layer in ("1", "2", "3"):
        hidden = torch.nn.functional.linear(hidden, net[f"weight{layer}"], net[f"bias{layer}"])
        hidden = hidden if layer == "3" else hidden.relu()
    given = (net["mean"] + spread).numpy()
    np.testing.assert_allclose(answer(name, given), hidden.numpy(), rtol=1e-9)
