"""Generates ``docs/gallery``: per operator, a strip of truth, measurement and restoration.

Uses the embedded prior with its recommended settings.

    python scripts/make_gallery.py [OPERATOR ...]

Photograph: ``examples/photos/chelsea.png``, which is not in the training data, at the prior's
native 128 pixels. Seed 0, one sample.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from aps_core.imaging import images, noise
from aps_core.imaging.resampling import resize
from aps_core.operators import OperatorSpec
from aps_core.runtime.engine import ImageEngine
from aps_core.tasks import Inputs, PictureResult, RestoreSpec, run

ROOT = Path(__file__).parents[1]
SIDE, GAP = 128, 8
SHOWN: dict[str, tuple[dict[str, Any], float]] = {
    "colorize": ({}, 0.05),
    "compose": (
        {
            "stages": [
                {"type": "gaussian_blur", "sigma": 1.0},
                {"type": "super_resolution", "factor": 2},
                {"type": "jpeg", "quality": 40},
            ]
        },
        0.02,
    ),
    "defocus_blur": ({"radius": 3.0}, 0.05),
    "denoise": ({}, 0.2),
    "gaussian_blur": ({"sigma": 1.5}, 0.05),
    "hdr": ({"scale": 2.0}, 0.05),
    "inpainting": ({"mask": "random", "fraction": 0.7}, 0.05),
    "jpeg": ({"quality": 10}, 0.0),
    "kernel_blur": (
        {"kernel": [[0, 0, 0, 0, 3], [0, 0, 0, 3, 2], [0, 1, 2, 2, 0], [4, 2, 1, 0, 0]]},
        0.05,
    ),
    "linear_motion_blur": ({"length": 9.0, "angle": 30.0}, 0.05),
    "motion_blur": ({"kernel_size": 15}, 0.05),
    "saturating_blur": ({"sigma": 2.0}, 0.05),
    "super_resolution": ({"factor": 4}, 0.05),
}
"""Operator fields and noise of each picture. 'nonlinear_blur' is missing because its weights are
not shipped.
"""


def main(names: list[str]) -> None:
    """Generates the strips of the operators ``names``, or of all if empty."""
    engine = ImageEngine.load("embedded", "cpu")
    truth = resize(
        images.to_tensor(images.open_image((ROOT / "examples/photos/chelsea.png").read_bytes())),
        (SIDE, SIDE),
    ).clamp(-1, 1)
    for name in names or SHOWN:
        fields, sigma = SHOWN[name]
        operator = OperatorSpec.named(name).model_validate({"type": name, **fields})
        y = noise.add_noise(
            operator.bind((3, SIDE, SIDE))(truth[None])[0], sigma, torch.Generator().manual_seed(0)
        ).clamp(-1, 1)
        result = run(
            RestoreSpec(operator=operator, sigma=sigma),
            Inputs(images.open_image(images.encode_png(y))),
            engine,
        )
        assert isinstance(result, PictureResult)
        strip = Image.new("RGB", (3 * SIDE + 2 * GAP, SIDE), "white")
        for place, x_CHW in enumerate((truth, y, result.pictures_BCHW[result.best])):
            strip.paste(
                images.to_pil(x_CHW).resize((SIDE, SIDE), Image.Resampling.NEAREST),
                (place * (SIDE + GAP), 0),
            )
        strip.save(ROOT / "docs/gallery" / f"{name}.webp", quality=90, method=6)
        print(
            f"{name}: {result.seconds['sampling']:.1f} s, misfit {result.misfit_B[0]:.4f}, noise"
            f" floor {result.noise_floor:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
