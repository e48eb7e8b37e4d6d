"""Generates ``docs/gallery``: per operator, truth, measurement and restoration, of a photograph and
of a page.

    python scripts/make_gallery.py [OPERATOR ...]

The restorations are by the priors and settings that a job gets by default. The pictures
``examples/photos/chelsea.png`` and ``examples/documents/page-sil-andika.png`` are not in the
training data; 128 pixels, seed 0, one sample.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.imaging import images, noise
from aps_core.imaging.resampling import resize
from aps_core.operators import OperatorSpec
from aps_core.priors import specialised_in
from aps_core.priors.base import Content
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


def pictures() -> dict[Content, Tensor]:
    """A photograph and a page (3, SIDE, SIDE) in [-1, 1]."""
    photograph, page = (
        images.to_tensor(images.open_image((ROOT / "examples" / name).read_bytes()))
        for name in ("photos/chelsea.png", "documents/page-sil-andika.png")
    )
    top, left = ((side - SIDE) // 2 for side in page.shape[1:])
    return {
        "photographs": resize(photograph, (SIDE, SIDE)).clamp(-1, 1),
        "documents": page[:, top : top + SIDE, left : left + SIDE],
    }


@cache
def engine(prior: str) -> ImageEngine:
    """Each prior is loaded once."""
    return ImageEngine.load(prior, "cpu")


def row(name: str, content: Content, truth_CHW: Tensor) -> list[Tensor]:
    """Truth, measurement and restoration."""
    fields, sigma = SHOWN[name]
    operator = OperatorSpec.named(name).model_validate({"type": name, **fields})
    clean_CHW = operator.bind((3, SIDE, SIDE))(truth_CHW[None])[0]
    generator = torch.Generator().manual_seed(0)
    y_CHW = noise.add_noise(clean_CHW, sigma, generator).clamp(-1, 1)
    prior = specialised_in(content, {each.type for each in operator.each}) or "embedded"
    result = run(
        RestoreSpec(operator=operator, sigma=sigma, prior=prior),
        Inputs(images.open_image(images.encode_png(y_CHW))),
        engine(prior),
    )
    assert isinstance(result, PictureResult)
    print(
        f"{name} {content} by {prior}: {result.seconds['sampling']:.1f} s, misfit"
        f" {result.misfit_B[0]:.4f}, noise floor {result.noise_floor:.4f}",
        flush=True,
    )
    return [truth_CHW, y_CHW, result.pictures_BCHW[result.best]]


def main(names: list[str]) -> None:
    """Generates the strips of the operators ``names``, or of all if empty."""
    truths = pictures()
    for name in names or SHOWN:
        strip = Image.new("RGB", (3 * SIDE + 2 * GAP, 2 * SIDE + GAP), "white")
        for line, (content, truth_CHW) in enumerate(truths.items()):
            for place, x_CHW in enumerate(row(name, content, truth_CHW)):
                shown = images.to_pil(x_CHW).resize((SIDE, SIDE), Image.Resampling.NEAREST)
                strip.paste(shown, (place * (SIDE + GAP), line * (SIDE + GAP)))
        strip.save(ROOT / "docs/gallery" / f"{name}.webp", quality=90, method=6)


if __name__ == "__main__":
    main(sys.argv[1:])
