"""Sharp pictures to degrade: photographs and documents of the training corpora."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training import corpus
from training.diagnosis.simulate import resized
from training.documents.crops import DocumentCrops

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]
REDUCERS = (
    Image.Resampling.BOX,
    Image.Resampling.BICUBIC,
    Image.Resampling.LANCZOS,
    Image.Resampling.HAMMING,
)


def photographs(folder: Path, withheld: bool) -> Draw:
    """Random squares (size, size, 3) of corpus photographs, reduced by 1.3 to 3 to remove their own
    blur and compression.
    """
    pictures = [
        p for p in corpus.load(folder, icons=False)[withheld] if p.group in ("photo", "texture")
    ]

    def draw(rng: np.random.Generator, size: int) -> Array:
        while True:
            x = np.moveaxis(pictures[rng.integers(len(pictures))].pixels.numpy(), 0, 2) / 127.5 - 1
            factor = rng.uniform(1.3, 3.0)
            side = round(size * factor)
            if min(x.shape[:2]) < side:
                side = min(x.shape[:2])
                if side < 1.3 * size:
                    continue
            top, left = (int(rng.integers(n - side + 1)) for n in x.shape[:2])
            crop = x[top : top + side, left : left + side]
            return np.clip(
                resized(crop, (size, size), REDUCERS[rng.integers(len(REDUCERS))]), -1, 1
            )

    return draw


def documents(tiles: Path, seed: int) -> Draw:
    """Crops (size, size, 3) of pages, scans and screens, in colour and under uneven light."""
    return _drawn_from(DocumentCrops.of(tiles, seed))


def withheld_documents(tiles: Path, seed: int) -> Draw:
    """Crops as in :func:`documents`, of tiles withheld from all training."""
    names = ("validation-ink", "validation-scan", "validation-colour")
    ink, scans, colour = (np.load(tiles / f"{name}.npy", mmap_mode="r") for name in names)
    return _drawn_from(DocumentCrops([ink, scans], [colour], seed))


def _drawn_from(crops: DocumentCrops) -> Draw:
    def draw(rng: np.random.Generator, size: int) -> Array:
        return np.moveaxis(crops.crop(size).numpy().astype(np.float64), 0, 2)

    return draw
