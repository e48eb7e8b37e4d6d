"""Generates the studio's samples: example inputs with settings for each task.

Writes PNG files and ``index.json`` to ``service/ui/samples/``. PNG is lossless, so it does not
change the noise. The restoration samples are photographs degraded by known operators. The samples
of the other tasks are clean photographs, synthetic patterns and prompts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from aps_core.imaging import images, noise
from aps_core.imaging.resampling import resize
from aps_core.operators import OperatorSpec

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "service" / "ui" / "samples"
SIZE = 128
"""Side length of the restored pictures in pixels: the native size of the embedded prior."""
SAMPLES: dict[str, tuple[dict[str, Any], float]] = {
    "coffee": ({"type": "super_resolution", "factor": 4}, 0.05),
    "chelsea": ({"type": "defocus_blur", "radius": 3.0}, 0.05),
    "rocket": ({"type": "hdr", "scale": 2.0}, 0.02),
    "astronaut": ({"type": "inpainting", "mask": "random", "fraction": 0.6}, 0.05),
}

PHOTOS = ("raccoon", "coffee")
"""Clean photographs to edit, stylize and degrade in the studio: public domain or CC0."""
STARTS: list[dict[str, Any]] = [
    {
        "name": "raccoon-demo",
        "task": "restore",
        "demo": True,
        "pictures": {"image": "photo-raccoon.png"},
        "spec": {"operator": SAMPLES["coffee"][0]},
    },
    {
        "name": "coffee-demo",
        "task": "restore",
        "demo": True,
        "pictures": {"image": "photo-coffee.png"},
        "spec": {"operator": {"type": "jpeg", "quality": 10}},
    },
    {
        "name": "raccoon-edit",
        "task": "edit",
        "pictures": {"image": "photo-raccoon.png"},
        "spec": {"prompt": "a raccoon among green leaves"},
    },
    {
        "name": "coffee-edit",
        "task": "edit",
        "pictures": {"image": "photo-coffee.png"},
        "spec": {"prompt": "a cup of coffee on a red saucer"},
    },
    {
        "name": "ember",
        "task": "stylize",
        "pictures": {"style": "style-ember.png"},
        "spec": {"prompt": "a mountain lake"},
    },
    {
        "name": "tiles",
        "task": "stylize",
        "pictures": {"style": "style-tiles.png", "image": "photo-raccoon.png"},
        "spec": {"prompt": "a raccoon"},
    },
    {
        "name": "lantern",
        "task": "guide",
        "pictures": {},
        "spec": {"prompt": "What is a lantern?", "compare_unguided": True},
    },
    {
        "name": "hobby",
        "task": "guide",
        "pictures": {},
        "spec": {
            "prompt": "Describe your favorite book in one sentence.",
            "compare_unguided": True,
        },
    },
    {"name": "flower", "task": "generate", "pictures": {}, "spec": {"prompt": "a red flower"}},
    {
        "name": "sky",
        "task": "generate",
        "pictures": {},
        "spec": {"prompt": "a sunset over the sea"},
    },
]


def ember() -> Image.Image:
    """Draws warped waves in warm colours."""
    y, x = np.mgrid[0:SIZE, 0:SIZE] / SIZE * 6.0
    wave = np.sin(x + 1.6 * np.sin(1.3 * y) + 1.1 * np.cos(2.1 * x - y)) + 0.5 * np.sin(
        2.7 * y + 1.9 * np.cos(1.7 * x)
    )
    rows = [
        np.interp(wave, np.linspace(-1.5, 1.5, 5), stops)
        for stops in ((28, 94, 196, 240, 252), (16, 24, 62, 148, 226), (44, 60, 44, 60, 170))
    ]
    return Image.fromarray(np.stack(rows, -1).astype(np.uint8))


def tiles() -> Image.Image:
    """Draws a Truchet tiling: randomly rotated quarter circles in blue and white."""
    side, flips = 16, np.random.default_rng(5).integers(0, 2, (SIZE // 16, SIZE // 16))
    v, u = (np.mgrid[0:side, 0:side] + 0.5) / side
    arcs = np.minimum(np.abs(np.hypot(u, v) - 0.5), np.abs(np.hypot(1 - u, 1 - v) - 0.5))
    distance = np.block([[arcs[:, ::-1] if flip else arcs for flip in row] for row in flips])[
        ..., None
    ]
    edge = np.clip((0.17 - distance) * side, 0, 1)
    return Image.fromarray(
        (np.array([244, 240, 226]) * (1 - edge) + np.array([32, 74, 135]) * edge).astype(np.uint8)
    )


def photo(name: str) -> Image.Image:
    """Opens the photograph ``name`` at ``SIZE``."""
    return images.to_pil(resize(images.to_tensor(_open(name)), (SIZE, SIZE)).clamp(-1, 1))


def _open(name: str) -> images.Picture:
    return images.open_image((ROOT / "examples" / "photos" / f"{name}.png").read_bytes())


def degrade(name: str, operator: dict[str, Any], sigma: float) -> Image.Image:
    """Degrades the photograph ``name`` at ``SIZE``; missing pixels become transparent."""
    x = resize(images.to_tensor(_open(name)), (SIZE, SIZE)).clamp(-1, 1)
    bound = OperatorSpec.family[operator["type"]].model_validate(operator).bind(x.shape)  # type: ignore[attr-defined]
    y = noise.add_noise(bound(x[None])[0], sigma, torch.Generator().manual_seed(1))
    picture = images.to_pil(y)
    if bound.weight is not None:
        known = bound.weight.expand(1, 1, *y.shape[-2:])[0, 0]
        picture.putalpha(Image.fromarray(known.mul(255).to(torch.uint8).numpy()))
    return picture


def main() -> None:
    """Writes all samples and their index."""
    for name in PHOTOS:
        photo(name).save(FOLDER / f"photo-{name}.png", optimize=True)
    for style in (ember, tiles):
        style().save(FOLDER / f"style-{style.__name__}.png", optimize=True)
    index: list[dict[str, Any]] = []
    for name, (operator, sigma) in SAMPLES.items():
        degrade(name, operator, sigma).save(FOLDER / f"{name}.png", optimize=True)
        # missing pixels are stored as transparency, so that they are the same on any device
        sent = (
            {"type": "inpainting", "mask": "upload"}
            if operator["type"] == "inpainting"
            else operator
        )
        index.append(
            {
                "name": name,
                "task": "restore",
                "pictures": {"image": f"{name}.png"},
                "spec": {"operator": sent, "sigma": sigma},
            }
        )
    (FOLDER / "index.json").write_text(json.dumps(index + STARTS, indent=1) + "\n")


if __name__ == "__main__":
    main()
