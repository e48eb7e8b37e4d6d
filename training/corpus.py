"""Reads the training corpus: zip files of small pictures, each with a ``.jsonl`` metadata file.

Expected in the folder: ``photos_train.zip`` + ``photos_train.jsonl`` and ``icons_train.zip`` +
``icons_train.jsonl`` (fields ``file``, ``group`` or ``style``, ``src``, ``caption``).
``training/README.md`` describes how to rebuild these files from public packages.
"""

from __future__ import annotations

import io
import json
import random
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

VALIDATION_PHOTOS = 32
"""Photographs withheld from training and used for tuning. The shipped evaluation photographs are
used for neither.
"""

SAMPLING_SHARE = {"photo": 0.70, "texture": 0.12, "icon": 0.15, "other": 0.03}
"""Sampling weight of each group."""


@dataclass(frozen=True)
class Picture:
    """One picture of the corpus: uint8 pixels (3, H, W), its sampling group and its caption."""

    pixels: Tensor
    group: str
    caption: str | None
    source: str


def _read(folder: Path, name: str) -> list[Picture]:
    pictures = []
    with zipfile.ZipFile(folder / f"{name}.zip") as archive:
        for line in (folder / f"{name}.jsonl").read_text().splitlines():
            row = json.loads(line)
            image = Image.open(io.BytesIO(archive.read(row["file"]))).convert("RGB")
            pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
            group = row.get("group", "icon")
            group = group if group in SAMPLING_SHARE else "other"
            pictures.append(Picture(pixels, group, row.get("caption"), row.get("src", row["file"])))
    return pictures


def load(folder: Path, icons: bool = True) -> tuple[list[Picture], list[Picture]]:
    """Returns (training, validation) pictures.

    Validation consists of 32 photographs whose sources do not occur in training.
    """
    photos = _read(folder, "photos_train")
    candidates = sorted({p.source for p in photos if p.group == "photo"})
    held_out = set(random.Random(0).sample(candidates, VALIDATION_PHOTOS))
    validation = list({p.source: p for p in photos if p.source in held_out}.values())
    training = [p for p in photos if p.source not in held_out]
    return training + (_read(folder, "icons_train") if icons else []), validation


def square(picture: Picture, size: int) -> Tensor:
    """Crops the centre square and resizes it with antialiasing to (3, size, size) in [-1, 1]."""
    side = min(picture.pixels.shape[1:])
    top, left = ((n - side) // 2 for n in picture.pixels.shape[1:])
    crop = picture.pixels[None, :, top : top + side, left : left + side].float()
    return (F.interpolate(crop, (size, size), mode="bicubic", antialias=True)[0] / 127.5 - 1).clamp(
        -1, 1
    )


class CropSampler:
    """Draws random square crops at log-uniform scale, flipped at random, as (B, 3, size, size) in
    [-1, 1].
    """

    def __init__(
        self, pictures: list[Picture], size: int, seed: int, min_scale: float = 1.0
    ) -> None:
        self.groups = {g: [p for p in pictures if p.group == g] for g in SAMPLING_SHARE}
        self.groups = {g: members for g, members in self.groups.items() if members}
        self.weights = [SAMPLING_SHARE[g] for g in self.groups]
        self.size = size
        self.min_side = int(size * min_scale)
        self.random = random.Random(seed)

    def crop(self) -> tuple[Tensor, str | None]:
        """Draws one crop (3, size, size) in [-1, 1] and its caption."""
        group = self.random.choices(list(self.groups), self.weights)[0]
        picture = self.random.choice(self.groups[group])
        height, width = picture.pixels.shape[1:]
        largest = min(height, width)
        smallest = min(self.min_side, largest)
        side = round(smallest * (largest / smallest) ** self.random.random())
        top, left = self.random.randint(0, height - side), self.random.randint(0, width - side)
        x = picture.pixels[None, :, top : top + side, left : left + side].float()
        if side != self.size:
            x = F.interpolate(x, (self.size, self.size), mode="bilinear", antialias=True)
        if group != "icon" and self.random.random() < 0.5:
            x = x.flip(-1)
        return x[0] / 127.5 - 1, picture.caption

    def batch(self, batch_size: int) -> Tensor:
        """Draws a batch (batch_size, 3, size, size) in [-1, 1]."""
        return torch.stack([self.crop()[0] for _ in range(batch_size)])
