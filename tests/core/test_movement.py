"""Movements of pages, measured in their edges."""

from pathlib import Path

import pytest
import torch

from aps_core.identify.blind.families import FAMILIES
from aps_core.identify.blind.movement import movement_of
from aps_core.imaging import images, noise

DOCUMENTS = Path(__file__).parents[2] / "examples/documents"
MOTION = FAMILIES["motion"]


def moved(name, true, sigma=0.02):
    x_CHW = images.to_tensor(images.open_image((DOCUMENTS / f"{name}.png").read_bytes()))
    y_CHW = MOTION.blur(true).bind((3, *x_CHW.shape[1:]))(x_CHW[None])[0]
    return images.to_pil(noise.add_noise(y_CHW, sigma, torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("name", "true", "guess"),
    [("scan-1400", (7.0, 75.0), (6.2, 68.0)), ("page-sil-andika", (11.0, 20.0), (12.5, 27.0))],
)
def test_a_guess_becomes_the_true_movement(name, true, guess):
    found = movement_of(moved(name, true), [guess], 0.15, sigma=0.02)
    assert MOTION.distance(guess, true) > 0.1
    assert MOTION.distance(found, true) < 0.04


def test_the_answer_is_never_beyond_the_reach():
    """Between half and twice the length, other maxima lie."""
    true = (11.0, 75.0)
    found = movement_of(moved("scan-1400", true), [(7.0, 75.0)], 0.2, sigma=0.02)
    assert 7.0 * 0.8 < found[0] < 7.0 * 1.23
