"""The pictures in ``examples/`` as studies use them."""

from __future__ import annotations

from pathlib import Path

from aps_core.evaluation.photographs import Photographs
from aps_core.imaging.images import open_image, to_tensor

EXAMPLES = Path(__file__).parents[2] / "examples"
SIDE = 128


def middles(folder: Path, every: int) -> Photographs:
    """Middle squares (3, 128, 128) in [-1, 1] of every Nth picture, at the pictures' own scale."""
    found = []
    for path in sorted(folder.glob("*.png"))[::every]:
        x_CHW = to_tensor(open_image(path.read_bytes()))
        top, left = ((side - SIDE) // 2 for side in x_CHW.shape[1:])
        found.append((path.stem, x_CHW[:, top : top + SIDE, left : left + SIDE]))
    return found
