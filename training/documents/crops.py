"""Random crops of tiles, coloured, tilted and lit on the fly: what a batch of training is made of.

All random numbers come from one numpy generator. Crops are (3, S, S) float32 in [-1, 1].
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.uint8]

INK_SHARE = 0.6
"""Share of crops from ink tiles."""

COLOUR_OCTAVES = 2.0
"""By which colour crops are reduced at most: screens show smaller pictures of screens. Reduced as
much, type would vanish.
"""

TILTED_SHARE = 0.35
"""Share of crops that are rotated and put in perspective."""

LIT_SHARE = 0.45
"""Share of ink crops with uneven light."""

MIN_CONTRAST = 0.25
"""Least difference of paper and ink, of 1, on the mean of the channels."""


def load_tiles(folder: Path, name: str) -> list[Array]:
    """The shards ``name-*.npy`` as memory maps: pages are read from disk when they are drawn."""
    shards = sorted(folder.glob(f"{name}-*.npy"))
    if not shards:
        raise FileNotFoundError(f"No {name}-*.npy in {folder}; run training.documents.build first.")
    return [np.load(path, mmap_mode="r") for path in shards]


class DocumentCrops:
    """Draws crops from tiles (N, 512, 512) of ink and (N, 512, 512, 3) of colour."""

    def __init__(self, ink: list[Array], colour: list[Array], seed: int) -> None:
        self.ink = ink
        self.colour = colour
        self.rng = np.random.default_rng(seed)

    @classmethod
    def of(cls, tiles: Path, seed: int) -> Self:
        """Crops of all the training tiles in a folder."""
        return cls(load_tiles(tiles, "ink"), load_tiles(tiles, "colour"), seed)

    def batch(self, count: int, size: int) -> Tensor:
        """(count, 3, size, size) in [-1, 1]."""
        return torch.stack([self.crop(size) for _ in range(count)])

    def crop(self, size: int) -> Tensor:
        """One crop; an empty region is drawn anew nine times out of ten."""
        while True:
            if self.rng.random() < INK_SHARE:
                x = self._coloured(self._region(self.ink, size))
            else:
                x = self._varied(self._region(self.colour, size, COLOUR_OCTAVES))
            if x.std() > 0.05 or self.rng.random() < 0.1:
                return x.clamp(0, 1) * 2 - 1

    def _region(self, shards: list[Array], size: int, octaves: float = 1.0) -> Tensor:
        """(C, size, size) in [0, 1]: a piece at its own scale, reduced, or tilted."""
        rng = self.rng
        shard = shards[rng.integers(len(shards))]
        tile = shard[rng.integers(len(shard))]
        kind = rng.random()
        tilted = kind < TILTED_SHARE
        scale = 1.0 if kind > 0.7 else 2 ** rng.uniform(-0.25, octaves)
        side = round(size * scale * (1.35 if tilted else 1))
        side = min(side, len(tile))
        top, left = rng.integers(len(tile) - side + 1, size=2)
        piece = torch.from_numpy(np.array(tile[top : top + side, left : left + side]))
        x = (piece[None] if piece.ndim == 2 else piece.permute(2, 0, 1)).float()[None] / 255
        inner = round(size * 1.35) if tilted else size
        if side != inner:
            x = F.interpolate(x, (inner, inner), mode="bilinear", antialias=side > inner)
        return (self._tilt(x, size) if tilted else x)[0]

    def _tilt(self, x: Tensor, size: int) -> Tensor:
        """(1, C, S, S): the middle of a larger square under a small rotation and perspective."""
        rng = self.rng
        angle = np.deg2rad(rng.normal(0, 2.5))
        shear, stretch = rng.normal(0, 0.03, 2)
        share = size / x.shape[-1]
        a, b = share * np.cos(angle), share * np.sin(angle)
        matrix = np.array(
            [[a * (1 + stretch), -b + shear, 0], [b, a, 0], [*rng.normal(0, 0.04, 2), 1]]
        )
        axis = np.linspace(-1 + 1 / size, 1 - 1 / size, size)
        points = np.stack([*np.meshgrid(axis, axis), np.ones((size, size))], -1) @ matrix.T
        grid = torch.from_numpy(points[..., :2] / points[..., 2:]).float()[None]
        return F.grid_sample(
            x, grid, mode="bicubic", padding_mode="reflection", align_corners=False
        )

    def _coloured(self, ink: Tensor, lit_share: float = LIT_SHARE) -> Tensor:
        """(3, S, S): ink coverage (1, S, S) as ink on paper, sometimes reversed, sometimes lit."""
        rng = self.rng
        paper, pen = self._colours()
        if rng.random() < 0.12:
            paper, pen = pen, paper
        paper_C11, pen_C11 = (torch.from_numpy(c).float().reshape(3, 1, 1) for c in (paper, pen))
        x = paper_C11 + (pen_C11 - paper_C11) * ink.clamp(0, 1)
        if rng.random() < lit_share:
            x = x * self._light(x.shape[-1])
            if rng.random() < 0.5:
                x = x + self._field(x.shape[-1], 12, rng.uniform(0.003, 0.02))
        return x

    def _colours(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Paper and ink (3,), far enough apart to be read: black on white, greys, colours."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.3:
            return np.ones(3), np.zeros(3)
        while True:
            paper = rng.uniform(0.6, 1.0) * (1 - rng.uniform(0, 0.25) * rng.dirichlet([1, 1, 1]))
            pen = np.full(3, rng.uniform(0, 0.45))
            if kind > 0.75:  # coloured ink
                pen = rng.uniform(0, 0.7, 3)
            if kind > 0.92:  # coloured paper
                paper = rng.uniform(0.3, 1.0, 3)
            if abs((paper - pen).mean()) > MIN_CONTRAST:
                return paper, pen

    def photographed(self, ink: Tensor) -> Tensor:
        """(3, S, S) in [0, 1]: ink coverage (1, S, S) in other colours, tilted and unevenly lit."""
        size = ink.shape[-1]
        margin = round(size * 0.175)
        larger = F.pad(ink[None], (margin,) * 4)
        return self._coloured(self._tilt(larger, size)[0], lit_share=1.0).clamp(0, 1)

    def _light(self, size: int) -> Tensor:
        """(1, S, S): a smooth field in about [0.4, 1.1], often with the soft edge of a shadow."""
        rng = self.rng
        light = (
            1
            - rng.uniform(0, 0.15)
            + self._field(size, int(rng.integers(2, 4)), rng.uniform(0.02, 0.15))
        )
        if rng.random() < 0.4:
            axis = torch.linspace(-1, 1, size)
            turn = rng.uniform(0, 2 * np.pi)
            distance = (
                np.cos(turn) * axis[None] + np.sin(turn) * axis[:, None] + rng.uniform(-0.8, 0.8)
            )
            light = light * (
                1 - rng.uniform(0.1, 0.5) * torch.sigmoid(distance * rng.uniform(2, 25))
            )
        return light.clamp(0.25, 1.15)

    def _field(self, size: int, knots: int, amplitude: float) -> Tensor:
        """(1, S, S): a smooth random field with the given standard deviation at its knots."""
        noise = torch.from_numpy(self.rng.normal(0, amplitude, (1, 1, knots, knots))).float()
        return F.interpolate(noise, (size, size), mode="bicubic", align_corners=True)[0]

    def _varied(self, x: Tensor) -> Tensor:
        """(3, S, S): a colour crop as it is, in grey, with other colours, reversed, or lit."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.2:
            x = x.mean(0, keepdim=True).expand(3, -1, -1)
        elif kind < 0.4:
            x = x[rng.permutation(3)]
        if rng.random() < 0.1:
            x = 1 - x
        if rng.random() < 0.15:
            x = x * self._light(x.shape[-1])
        return x
